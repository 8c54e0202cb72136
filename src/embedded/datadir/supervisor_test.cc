// Tests with real processes: shells that write their events to files.
#include "datadir/supervisor.h"

#include <csignal>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <thread>

#include "codec/json.h"
#include "os/testing/test_directory.h"

namespace varda::datadir {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

TEST(RestartPause, PauseDoublesUpToTheMaximum) {
  RestartPause pause(milliseconds(100), milliseconds(1000));
  std::vector<int> pauses;
  for (int i = 0; i < 6; ++i)
    pauses.push_back(static_cast<int>(pause.after(milliseconds(i)).count()));
  EXPECT_THAT(pauses, ElementsAre(100, 200, 400, 800, 1000, 1000));
}

TEST(RestartPause, PauseResetsAfterAChildRanLongEnough) {
  RestartPause pause(milliseconds(100), milliseconds(1000));
  for (int i = 0; i < 5; ++i) (void)pause.after(Duration::zero());
  EXPECT_EQ(pause.after(RestartPause::kSettledAfter), milliseconds(1000));
  EXPECT_EQ(pause.after(RestartPause::kSettledAfter + milliseconds(1)), milliseconds(100));
  EXPECT_EQ(pause.after(Duration::zero()), milliseconds(200));
}

TEST(RestartPause, ReversedAndHugeLimitsAreAccepted) {
  RestartPause reversed(milliseconds(1000), milliseconds(10));
  EXPECT_EQ(reversed.after(Duration::zero()), milliseconds(10));
  EXPECT_EQ(reversed.after(Duration::zero()), milliseconds(10));
  RestartPause longest(milliseconds::max() / 2 + milliseconds(1), milliseconds::max());
  (void)longest.after(Duration::zero());
  EXPECT_EQ(longest.after(Duration::zero()), milliseconds::max());
  EXPECT_EQ(longest.after(Duration::zero()), milliseconds::max());
}

constexpr milliseconds kGrace{60'000};  // only a hang reaches it

class Supervising : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::mkfifo((root_ / "never").c_str(), 0600), 0); }
  /// Ends every script that still waits after a failed test.
  void TearDown() override {
    const int fd = ::open((root_ / "never").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) ::close(fd);
  }

  /// `script` runs in the test's directory; `read x <never` waits for ever.
  Supervisor::Options options(const std::string& script) const {
    Supervisor::Options options;
    options.name = "test";
    options.process.program = "/bin/sh";
    options.process.arguments = {"-c", script};
    options.process.environment = {{"PATH", "/usr/bin:/bin"}};
    options.process.working_directory = root_.path();
    options.record = root_ / "record.json";
    options.data = root_ / "data";
    options.fingerprint = "one";
    options.backoff_min = milliseconds(1);
    options.backoff_max = milliseconds(4);
    return options;
  }
  /// A process that agents_of() takes for an agent of `data`.
  os::ProcessOptions agent(const std::string& data, const std::string& first = "agent") const {
    root_.write(first, "echo $$ >>started; read x <never");
    os::ProcessOptions process;
    process.program = "/bin/sh";
    process.arguments = {first,     "--node", "edge0", "--data-dir", (root_ / data).string(),
                         "--layer", "edge"};
    process.environment = {{"PATH", "/usr/bin:/bin"}};
    process.working_directory = root_.path();
    return process;
  }
  std::vector<std::string> lines(const std::string& name) const {
    std::vector<std::string> out;
    std::ifstream in(root_ / name);
    for (std::string line; std::getline(in, line) && !in.eof();) out.push_back(line);
    return out;
  }
  void wait_for_lines(const std::string& name, std::size_t count) const {
    wait_for([&] { return lines(name).size() >= count; }, name + " has too few lines");
  }
  static void wait_for(const std::function<bool()>& happened, const std::string& otherwise) {
    const SteadyTime limit = system_clock().now() + std::chrono::seconds(60);
    while (!happened()) {
      ASSERT_LT(system_clock().now(), limit) << otherwise;
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  os::ProcessId recorded() const {
    const auto json = codec::parse_json(root_.read("record.json"));
    if (!json.ok()) return {};
    return {static_cast<pid_t>((*json)["pid"].as_integer()),
            static_cast<std::uint64_t>((*json)["startTicks"].as_integer())};
  }
  void wait_for_record_of(const std::string& pid) const {
    wait_for([&] { return std::to_string(recorded().pid) == pid; }, "no record of " + pid);
  }
  /// Leaves a running child and its record, like a killed supervisor.
  void leave_a_child(const Supervisor::Options& options) const {
    Supervisor first(options);
    first.start();
    wait_for_lines("started", 1);
    wait_for_record_of(lines("started")[0]);
  }
  void record(const os::ProcessId& id, const std::string& fingerprint) const {
    root_.write("record.json", "{\"pid\":" + std::to_string(id.pid) +
                                   ",\"startTicks\":" + std::to_string(id.start_ticks) +
                                   ",\"fingerprint\":\"" + fingerprint + "\"}");
  }
  static void end(const os::ProcessId& id) {
    (void)os::signal_process(id, SIGKILL, /*group=*/false);
    ASSERT_TRUE(os::wait_for_exit(Context::background().with_timeout(kGrace), id).ok());
    (void)os::real_processes().poll(id);
  }

  os::testing::TestDirectory root_;
};

TEST_F(Supervising, EndedChildIsRestarted) {
  Supervisor supervisor(options("echo $$ >>started; exit 3"));
  supervisor.start();
  wait_for_lines("started", 4);
  supervisor.stop(kGrace);
  EXPECT_FALSE(os::alive(recorded()));
}

TEST_F(Supervising, RunningChildIsRecordedOnDisk) {
  Supervisor supervisor(options("echo $$ >>started; read x <never"));
  supervisor.start();
  wait_for_lines("started", 1);
  wait_for_record_of(lines("started")[0]);
  EXPECT_TRUE(os::alive(recorded()));
  EXPECT_EQ(root_.mode("record.json"), 0600u);
  supervisor.stop(kGrace);
  EXPECT_FALSE(os::alive(recorded()));
}

TEST_F(Supervising, FailedStartIsRetried) {
  Supervisor::Options later = options("echo $$ >>started; read x <never");
  later.process.program = (root_ / "later").string();
  Supervisor supervisor(later);
  supervisor.start();
  std::filesystem::create_symlink("/bin/sh", root_ / "later");
  wait_for_lines("started", 1);
  supervisor.stop(kGrace);
  EXPECT_EQ(lines("started").size(), 1u);
}

TEST_F(Supervising, StopEndsAPauseAndStartsNothing) {
  Supervisor::Options never = options("");
  never.process.program = (root_ / "missing").string();
  never.backoff_min = never.backoff_max = std::chrono::hours(24);
  Supervisor supervisor(never);
  supervisor.start();
  supervisor.stop(kGrace);
  EXPECT_EQ(root_.read("record.json"), "<none>");
  Supervisor unused(never);
  unused.stop(kGrace);
}

TEST_F(Supervising, StopSendsSigtermBeforeSigkill) {
  Supervisor supervisor(
      options("trap 'echo asked >>started; exit 0' TERM; echo $$ >>started; while :; do read x "
              "<now; done"));
  // The trap runs between two reads, so `feeding` ends each read at once. O_RDWR keeps the FIFO
  // open.
  ASSERT_EQ(::mkfifo((root_ / "now").c_str(), 0600), 0);
  const int both = ::open((root_ / "now").c_str(), O_RDWR | O_CLOEXEC);
  supervisor.start();
  wait_for_lines("started", 1);
  std::jthread feeding([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (::write(both, "\n", 1) != 1) return;
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  supervisor.stop(kGrace);
  feeding.request_stop();
  feeding.join();
  ::close(both);
  ASSERT_EQ(lines("started").size(), 2u);
  EXPECT_EQ(lines("started")[1], "asked");
}

TEST_F(Supervising, StopKillsAChildThatDoesNotEndInTime) {
  Supervisor supervisor(options("trap '' TERM; echo $$ >>started; read x <never"));
  supervisor.start();
  wait_for_lines("started", 1);
  wait_for_record_of(lines("started")[0]);
  supervisor.stop(milliseconds(1));
  EXPECT_FALSE(os::alive(recorded()));
  EXPECT_EQ(lines("started").size(), 1u);
}

// The second supervisor cannot start a process, so the ended child is the adopted one.
TEST_F(Supervising, RunningChildOfAPreviousSupervisorIsAdopted) {
  Supervisor::Options same = options("echo $$ >>started; read x <never");
  leave_a_child(same);
  const os::ProcessId child = recorded();
  ASSERT_TRUE(os::alive(child));
  same.process.program = (root_ / "missing").string();
  Supervisor second(same);
  second.start();
  second.stop(kGrace);
  EXPECT_FALSE(os::alive(child));
  EXPECT_EQ(lines("started").size(), 1u);
}

TEST_F(Supervising, ReplacesAChildThatWasStartedDifferently) {
  Supervisor::Options other = options("echo $$ >>started; read x <never");
  leave_a_child(other);
  const os::ProcessId old = recorded();
  other.fingerprint = "two";
  Supervisor second(other);
  second.start();
  wait_for_lines("started", 2);
  EXPECT_FALSE(os::alive(old));
  (void)os::real_processes().poll(old);
  wait_for_record_of(lines("started")[1]);
  second.stop(kGrace);
}

// The kernel reuses pids, so the record may name an unrelated process.
TEST_F(Supervising, ProcessWithAReusedPidIsLeftAlone) {
  const os::ProcessId other = os::real_processes().start(options("read x <never").process).value();
  record({other.pid, other.start_ticks + 1}, "one");
  {
    Supervisor supervisor(options("echo $$ >>started; read x <never"));
    supervisor.start();
    wait_for_lines("started", 1);
    supervisor.stop(kGrace);
  }
  EXPECT_TRUE(os::alive(other));
  end(other);
}

TEST_F(Supervising, DamagedRecordIsIgnored) {
  for (const char* text : {"", "{", "null", "[]", R"({"pid":"one"})",
                           R"({"pid":-1,"startTicks":0})", R"({"pid":0})"}) {
    root_.write("record.json", text);
    std::filesystem::remove(root_ / "started");
    Supervisor supervisor(options("echo $$ >>started; read x <never"));
    supervisor.start();
    wait_for_lines("started", 1);
    supervisor.stop(kGrace);
    EXPECT_EQ(lines("started").size(), 1u) << text;
  }
}

TEST_F(Supervising, UnwritableRecordDoesNotStopSupervision) {
  Supervisor::Options unrecorded = options("echo $$ >>started; exit 0");
  unrecorded.record = root_ / "missing/record.json";
  Supervisor supervisor(unrecorded);
  supervisor.start();
  wait_for_lines("started", 2);
  supervisor.stop(kGrace);
}

TEST_F(Supervising, FindsTheAgentsOfADirectory) {
  std::vector<os::ProcessId> running;
  const auto run = [&](const os::ProcessOptions& process) {
    running.push_back(os::real_processes().start(process).value());
    wait_for_lines("started", running.size());
    return running.back();
  };
  const os::ProcessId one = run(agent("data")), two = run(agent("data"));
  (void)run(agent("data2"));             // another directory
  (void)run(agent("data/below"));        // another directory
  (void)run(agent("data", "operator"));  // no agent
  os::ProcessOptions named_later = agent("data", "up");
  named_later.arguments.push_back("agent");
  (void)run(named_later);
  EXPECT_THAT(agents_of(root_ / "data"), ::testing::UnorderedElementsAre(one, two));
  EXPECT_THAT(agents_of(root_ / "nothing"), ElementsAre());
  for (const os::ProcessId& id : running) end(id);
  EXPECT_THAT(agents_of(root_ / "data"), ElementsAre());
}

// The parent was killed just after it started the agent.
TEST_F(Supervising, UnrecordedAgentOfTheDirectoryIsEnded) {
  const os::ProcessId lost = os::real_processes().start(agent("data")).value();
  wait_for_lines("started", 1);
  Supervisor::Options next = options("");
  next.process = agent("data");
  Supervisor supervisor(next);
  supervisor.start();
  wait_for_lines("started", 2);
  EXPECT_FALSE(os::alive(lost));
  (void)os::real_processes().poll(lost);
  wait_for_record_of(lines("started")[1]);
  supervisor.stop(kGrace);
  EXPECT_THAT(agents_of(root_ / "data"), ElementsAre());
}

TEST_F(Supervising, EndProcessesKillsThoseThatIgnoreSigterm) {
  const os::ProcessId listens =
      os::real_processes().start(options("echo $$ >>started; read x <never").process).value();
  const os::ProcessId stubborn =
      os::real_processes()
          .start(options("trap '' TERM; echo $$ >>started; read x <never").process)
          .value();
  wait_for_lines("started", 2);
  end_processes({listens, stubborn, os::ProcessId{}}, milliseconds(100));
  EXPECT_FALSE(os::alive(listens));
  EXPECT_FALSE(os::alive(stubborn));
  EXPECT_EQ(os::real_processes().poll(stubborn).value()->signal, SIGKILL);
  (void)os::real_processes().poll(listens);
}

}  // namespace
}  // namespace varda::datadir
