// Pods as real processes.
#include "node/process_driver.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <thread>

#include "base/testing/eventually.h"
#include "codec/yaml.h"
#include "net/server.h"
#include "node/end_containers.h"
#include "node/internal/marked.h"
#include "node/log_stream.h"
#include "node/testing/fakes.h"

namespace varda::node {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

bool phase_is(const Json& status, const char* phase) {
  return status["phase"].as_string() == phase;
}
bool is_ready(const Json& status) {
  for (const Json& c : status["conditions"].as_array()) {
    if (c["type"].as_string() == "Ready") return c["status"].as_string() == "True";
  }
  return false;
}

class Processes : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "process_driver_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    start_runner();
  }
  void TearDown() override {
    if (runner_) {
      runner_->set_desired({});
      for (int i = 0; i < 12000 && !runner_->idle(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    stop_runner();
    EXPECT_TRUE(marked_become([](const auto& marked) { return marked.empty(); }));
    std::filesystem::remove_all(root_);
  }
  // Killed processes take a moment to disappear, because no process reaps a container's children.
  bool marked_become(
      const std::function<bool(const std::vector<internal::MarkedProcess>&)>& wanted) const {
    for (int i = 0; i < 12000; ++i) {
      if (wanted(internal::find_marked(root_))) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  static ProcessDriverOptions driver_options(const std::filesystem::path& root) {
    return {.root = root, .programs = {}, .images = {{"sh", "/bin/sh"}}, .environment = {}};
  }
  void start_runner() {
    driver_ = make_process_driver(driver_options(root_));
    auto opened = PodRunner::open(
        {.root = root_, .node_name = "edge0", .node_address = "127.0.0.1"}, *driver_, host_);
    ASSERT_TRUE(opened.ok()) << opened.error();
    runner_ = std::move(opened).value();
    thread_ =
        std::jthread([this](const std::stop_token& stop) { (void)runner_->run(Context(stop)); });
  }
  void stop_runner() {
    thread_ = {};
    runner_.reset();
    driver_.reset();
  }
  static Json pod(const std::string& name, const std::string& script,
                  const std::string& more = "") {
    Json object =
        codec::parse_yaml("{metadata: {name: " + name + ", namespace: default, uid: uid-" + name +
                          "}, spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, "
                          "image: 'example.org/sh:1' " +
                          more + "}]}}")
            .value();
    object["spec"]["containers"].array_items().at(0).set("args", Json::array({"-c", script}));
    return object;
  }
  bool private_root_possible() const {
    os::ProcessOptions probe;
    probe.program = "/bin/true";
    probe.hidden = {root_};
    const auto id = os::real_processes().start(probe);
    if (!id.ok()) return false;
    (void)os::wait_for_exit(Context::background(), *id);
    (void)os::real_processes().poll(*id);
    return true;
  }
  os::Path directory(const std::string& name) const {
    return pod_directory(root_, "default", name, "uid-" + name);
  }
  std::string log(const std::string& name, const LogOptions& options = {}) const {
    auto stream = open_log(directory(name), "c", options);
    if (!stream.ok()) return stream.error().message();
    std::string text;
    while (auto piece = (*stream)->read()) {
      if (piece->empty()) break;
      text += *piece;
    }
    return text;
  }
  // Waits until the log contains the text.
  bool wrote(const std::string& name, const std::string& text) const {
    for (int i = 0; i < 12000; ++i) {
      if (log(name).find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  std::filesystem::path root_;
  testing::RecordingHost host_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<PodRunner> runner_;
  std::jthread thread_;
};

TEST_F(Processes, EnvironmentComesFromTheSpec) {
  Json wanted = pod("web", "pwd; env; echo done",
                    ", env: [{name: MODE, value: fast}, {name: WHO, valueFrom: {fieldRef: "
                    "{fieldPath: metadata.name}}}]");
  wanted["spec"].set("restartPolicy", "Never");
  runner_->set_desired({wanted});
  ASSERT_TRUE(host_.wait_for("web", [](const Json& s) { return phase_is(s, "Succeeded"); }))
      << codec::write_json(host_.status("web"));
  const std::string text = log("web");
  EXPECT_THAT(text, HasSubstr(directory("web").string() + "\n"));
  EXPECT_THAT(text, HasSubstr("MODE=fast\n"));
  EXPECT_THAT(text, HasSubstr("WHO=web\n"));
  EXPECT_THAT(text, HasSubstr("POD_IP=" + host_.status("web")["podIP"].as_string() + "\n"));
  EXPECT_THAT(text, HasSubstr("TMPDIR=" + directory("web").string() + "/tmp\n"));
  EXPECT_THAT(text, Not(HasSubstr("USER=")));
}

TEST_F(Processes, KilledContainerIsRestartedAndItsChildrenEnd) {
  runner_->set_desired({pod("web", "setsid sleep 1000 & sleep 1000 & echo up $$; wait")});
  ASSERT_TRUE(host_.wait_for("web", is_ready));
  ASSERT_TRUE(wrote("web", "up"));
  const std::string id = host_.status("web").at("containerStatuses/0/containerID").as_string();
  ASSERT_TRUE(id.starts_with("process://")) << id;
  ::kill(std::stoi(id.substr(10)), SIGKILL);
  ASSERT_TRUE(host_.wait_for("web", [&](const Json& s) {
    return s.at("containerStatuses/0/restartCount").as_integer() == 1 && is_ready(s);
  }));
  EXPECT_EQ(host_.status("web").at("containerStatuses/0/lastState/terminated/exitCode"), Json(137));
  EXPECT_TRUE(marked_become([](const auto& marked) {
    return std::all_of(marked.begin(), marked.end(),
                       [](const auto& process) { return process.name.attempt == 1; });
  }));
  EXPECT_THAT(log("web", {.run = LogOptions::Run::kPrevious}), HasSubstr("up"));
}

TEST_F(Processes, UnknownImageAndCommandAreReported) {
  Json unknown = pod("web", "true");
  unknown["spec"]["containers"].array_items().at(0).set("image", "nginx:1.25");
  Json wrong = pod("other", "true", ", command: [no-such-program]");
  runner_->set_desired({unknown, wrong});
  ASSERT_TRUE(host_.wait_for("web", [](const Json& s) {
    return s.at("containerStatuses/0/state/waiting/reason") == Json("ImageUnsupported");
  }));
  EXPECT_THAT(host_.status("web").at("containerStatuses/0/state/waiting/message").as_string(),
              HasSubstr("--image nginx=COMMAND"));
  ASSERT_TRUE(host_.wait_for("other", [](const Json& s) {
    return s.at("containerStatuses/0/state/waiting/reason") == Json("RunContainerError");
  }));
}

TEST_F(Processes, ExecAndTcpProbesDecideReadiness) {
  const auto server =
      net::Server::create({},
                          net::inline_handler([](const net::Request&) { return net::Response(); }))
          .value();
  runner_->set_desired(
      {pod("web", "touch ready; sleep 1000",
           ", readinessProbe: {exec: {command: [test, -f, ready]}, periodSeconds: 1}"),
       pod("open", "sleep 1000",
           ", readinessProbe: {tcpSocket: {host: 127.0.0.1, port: " +
               std::to_string(server->port()) + "}, periodSeconds: 1}"),
       pod("closed", "sleep 1000", ", readinessProbe: {tcpSocket: {port: 9}, periodSeconds: 1}")});
  EXPECT_TRUE(host_.wait_for("web", is_ready));
  EXPECT_TRUE(host_.wait_for("open", is_ready));
  EXPECT_TRUE(eventually("the probe of the closed port fails", [&] {
    const auto events = host_.events();
    return std::any_of(events.begin(), events.end(), [](const std::string& event) {
      return event.starts_with("closed Warning Unhealthy") &&
             event.find("dial tcp") != std::string::npos;
    });
  }));
  EXPECT_FALSE(is_ready(host_.status("closed")));
}

TEST_F(Processes, TerminateRunsTrapsAndStubbornContainerIsKilled) {
  runner_->set_desired(
      {pod("polite", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"),
       pod("stubborn", "trap '' TERM; echo up; while :; do sleep 0.05; done")});
  ASSERT_TRUE(wrote("polite", "up"));
  ASSERT_TRUE(wrote("stubborn", "up"));
  runner_->set_desired({});
  ASSERT_TRUE(host_.wait_finished("polite"));
  ASSERT_TRUE(host_.wait_finished("stubborn"));
  EXPECT_EQ(host_.status("polite").at("containerStatuses/0/state/terminated/exitCode"), Json(0));
  EXPECT_EQ(host_.status("stubborn").at("containerStatuses/0/state/terminated/exitCode"),
            Json(137));
}

TEST_F(Processes, NextRunnerAdoptsContainersOfStoppedRunner) {
  runner_->set_desired({pod("web", "echo up; sleep 1000")});
  ASSERT_TRUE(host_.wait_for("web", is_ready));
  const Json before = host_.status("web");
  stop_runner();
  EXPECT_THAT(internal::find_marked(root_), SizeIs(::testing::Ge(1u)));
  start_runner();
  ASSERT_TRUE(host_.wait_for("web", is_ready));
  EXPECT_EQ(host_.status("web"), before);
  // The adopted process is watched, too.
  ::kill(std::stoi(before.at("containerStatuses/0/containerID").as_string().substr(10)), SIGKILL);
  EXPECT_TRUE(host_.wait_for("web", [](const Json& s) {
    return s.at("containerStatuses/0/restartCount").as_integer() == 1;
  }));
}

TEST_F(Processes, MountsAppearAtTheirPath) {
  Json wanted =
      pod("web", "cat /models/digits/target; touch /models/digits/x 2>/dev/null || echo refused",
          ", volumeMounts: [{name: m, mountPath: /models/digits, readOnly: true}]");
  std::filesystem::create_directories(root_ / "model");
  std::ofstream(root_ / "model" / "target") << "3\n";
  wanted["spec"].set("restartPolicy", "Never");
  wanted["spec"].set(
      "volumes",
      Json::array({Json::object(
          {{"name", "m"}, {"hostPath", Json::object({{"path", (root_ / "model").string()}})}})}));
  runner_->set_desired({wanted});
  ASSERT_TRUE(host_.wait_for("web", [](const Json& s) {
    return phase_is(s, "Succeeded") ||
           s.at("containerStatuses/0/state/waiting/reason") == Json("MountUnsupported");
  })) << codec::write_json(host_.status("web"));
  if (!phase_is(host_.status("web"), "Succeeded")) GTEST_SKIP() << "no namespaces here";
  EXPECT_EQ(log("web"), "3\nrefused\n");
}

// The runner's directory holds credentials and other pods' secrets.
TEST_F(Processes, PodWithoutMountsCannotReadRunnerDirectory) {
  std::ofstream(root_ / "tokens.json") << "very secret\n";
  Json wanted = pod("web", "cat " + (root_ / "tokens.json").string() + "; ls -A; ls -A " +
                               root_.string() + "; echo end");
  wanted["spec"].set("restartPolicy", "Never");
  runner_->set_desired({wanted});
  ASSERT_TRUE(host_.wait_for("web", [](const Json& s) { return phase_is(s, "Succeeded"); }))
      << codec::write_json(host_.status("web"));
  const std::string text = log("web");
  if (!private_root_possible()) GTEST_SKIP() << "no namespaces here";
  EXPECT_THAT(text, HasSubstr("tmp\npods\nend\n"));
  EXPECT_THAT(text, Not(HasSubstr("secret")));
}

TEST_F(Processes, SecurityContextIsEnforced) {
  if (!private_root_possible()) GTEST_SKIP() << "no namespaces here";
  Json wanted =
      pod("web",
          "id -u; grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; touch /usr/x; echo a "
          "> note && cat note; "
          "echo b > /scratch/b && cat /scratch/b; cat /config/key",
          ", securityContext: {runAsUser: 65532, runAsNonRoot: true, readOnlyRootFilesystem: true, "
          "allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: "
          "RuntimeDefault}}, "
          "volumeMounts: [{name: s, mountPath: /scratch}, {name: c, mountPath: /config}]");
  wanted["spec"].set("restartPolicy", "Never");
  wanted["spec"].set(
      "volumes",
      codec::parse_yaml("[{name: s, emptyDir: {}}, {name: c, downwardAPI: {items: [{path: key, "
                        "fieldRef: {fieldPath: metadata.name}}]}}]")
          .value());
  runner_->set_desired({wanted});
  ASSERT_TRUE(host_.wait_for("web", [](const Json& s) { return phase_is(s, "Succeeded"); }))
      << codec::write_json(host_.status("web")) << log("web");
  const std::string text = log("web");
  EXPECT_THAT(text, HasSubstr("65532\n"));
  EXPECT_THAT(text, HasSubstr("CapBnd:\t0000000000000000\n"));
  EXPECT_THAT(text, HasSubstr("NoNewPrivs:\t1\nSeccomp:\t2\n"));
  EXPECT_THAT(text, HasSubstr("Read-only file system"));
  EXPECT_TRUE(text.ends_with("a\nb\nweb")) << text;
}

TEST_F(Processes, UnenforceableSecurityContextIsRefused) {
  const bool root = ::geteuid() == 0;
  runner_->set_desired({pod(
      "web", "true",
      root ? ", securityContext: {runAsNonRoot: true}" : ", securityContext: {privileged: true}")});
  const auto refused = [](const Json& s) {
    return s.at("containerStatuses/0/state/waiting/reason") == Json("CreateContainerConfigError");
  };
  ASSERT_TRUE(host_.wait_for("web", refused)) << codec::write_json(host_.status("web"));
  EXPECT_THAT(host_.status("web").at("containerStatuses/0/state/waiting/message").as_string(),
              HasSubstr(root ? "runAsNonRoot" : "privileged"));
}

// A separate runner process is killed at seeded moments. After each kill, a pod has at most one
// container. TearDown() checks that the last runner ends all of them.
TEST_F(Processes, KilledRunnerLeavesNoDuplicateOrLeakedContainers) {
  stop_runner();
  const auto rng = seeded_rng(11);
  const std::vector<Json> pods = {pod("a", "sleep 1000"), pod("b", "sleep 0.02; exit 1"),
                                  pod("d", "sleep 1000")};
  for (int round = 0; round < 10; ++round) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      auto driver = make_process_driver(driver_options(root_));
      auto runner = PodRunner::open(
          {.root = root_, .node_name = "edge0", .node_address = "127.0.0.1"}, *driver, host_);
      if (!runner.ok()) ::_exit(1);
      (*runner)->set_desired(pods);
      (void)(*runner)->run(Context::background());
      ::_exit(0);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(rng->below(150'000)));
    ::kill(pid, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    std::map<std::string, int> leaders;
    for (const auto& process : internal::find_marked(root_))
      leaders[process.name.pod_uid] += process.leads_group ? 1 : 0;
    for (const auto& [uid, count] : leaders) EXPECT_LE(count, 1) << uid << " in round " << round;
  }
  start_runner();
  runner_->set_desired(pods);
  EXPECT_TRUE(host_.wait_for("a", is_ready));
  EXPECT_TRUE(host_.wait_for("d", is_ready));
}

TEST_F(Processes, LogStreamFollowsUntilTheContainerEnds) {
  Json wanted =
      pod("web", "i=0; while [ $i -lt 5 ]; do echo line $i; i=$((i+1)); sleep 0.05; done");
  wanted["spec"].set("restartPolicy", "Never");
  runner_->set_desired({wanted});
  ASSERT_TRUE(wrote("web", "line 0"));
  auto stream = open_log(directory("web"), "c", {.follow = LogOptions::Follow::kYes}).value();
  Mutex mutex;
  CondVar woken;
  bool ready = true;
  stream->on_ready([&] {
    MutexLock lock(mutex);
    ready = true;
    woken.notify_all();
  });
  std::string text;
  while (auto piece = stream->read()) {
    text += *piece;
    if (!piece->empty()) continue;
    MutexLock lock(mutex);
    ready = false;
    const SteadyTime until = system_clock().now() + kTestPatience;
    while (!ready && woken.wait_until(mutex, until)) {
    }
    ASSERT_TRUE(ready) << "the log has nothing more, and does not end";
  }
  EXPECT_EQ(text, "line 0\nline 1\nline 2\nline 3\nline 4\n");
}

TEST_F(Processes, EndContainersWorksWithoutARunner) {
  runner_->set_desired(
      {pod("web", "setsid sleep 1000 & trap '' TERM; echo up; while :; do sleep 0.05; done")});
  ASSERT_TRUE(wrote("web", "up"));
  stop_runner();
  EXPECT_GE(end_containers(root_ / "." / "", std::chrono::milliseconds(50)).value(), 2u);
  EXPECT_THAT(internal::find_marked(root_), IsEmpty());
  EXPECT_EQ(end_containers(root_, std::chrono::milliseconds(50)).value(), 0u);
  start_runner();
  EXPECT_TRUE(host_.wait_for("web", [](const Json& s) {
    return s.at("containerStatuses/0/restartCount").as_integer() == 1 && is_ready(s);
  }));
}

TEST(Probes, HttpProbeSucceedsBelow400AndReportsOtherStatus) {
  const auto driver = make_process_driver({});
  const auto prober = make_prober(*driver);
  auto server = net::Server::create({}, net::inline_handler([](const net::Request& request) {
                                      net::Response response;
                                      response.status = request.path() == "/ok"      ? 200
                                                        : request.path() == "/moved" ? 302
                                                                                     : 503;
                                      return response;
                                    }))
                    .value();
  const auto probe = [&](const std::string& path, int port) {
    Mutex mutex;
    CondVar changed;
    std::optional<std::string> answer;
    Probe wanted;
    wanted.host = "127.0.0.1";
    wanted.port = port;
    wanted.path = path;
    wanted.timeout = std::chrono::seconds(10);
    prober->start(wanted, [&](const Status& status) {
      MutexLock lock(mutex);
      answer = status.ok() ? "ok" : status.error().message();
      changed.notify_all();
    });
    MutexLock lock(mutex);
    const SteadyTime until = system_clock().now() + kTestPatience;
    while (!answer && changed.wait_until(mutex, until)) {
    }
    return answer.value_or("no answer");
  };
  EXPECT_EQ(probe("/ok", server->port()), "ok");
  EXPECT_EQ(probe("/moved", server->port()), "ok");
  EXPECT_EQ(probe("/bad", server->port()), "HTTP probe failed with statuscode: 503");
  server->stop(std::chrono::seconds(5));
  EXPECT_NE(probe("/ok", server->port()), "ok");
}

TEST(Logs, TailAndLimitSpanRotatedLogs) {
  std::string pattern = ::testing::TempDir() + "logs_test_XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const os::Path directory = pattern;
  const auto read = [&](LogOptions options) {
    auto stream = open_log(directory, "c", options).value();
    std::string text;
    while (auto piece = stream->read()) text += *piece;
    return text;
  };
  std::ofstream(directory / "c.log") << "one\ntwo\nthree\n";
  EXPECT_EQ(read({}), "one\ntwo\nthree\n");
  EXPECT_EQ(read({.tail_lines = 2}), "two\nthree\n");
  EXPECT_EQ(read({.tail_lines = 0}), "");
  EXPECT_EQ(read({.limit_bytes = 5}), "one\nt");
  ASSERT_TRUE(rotate_log(directory / "c.log", 1000).ok());
  EXPECT_FALSE(std::filesystem::exists(directory / "c.log.1"));
  ASSERT_TRUE(rotate_log(directory / "c.log", 10).ok());
  std::ofstream(directory / "c.log", std::ios::app) << "four\n";
  EXPECT_EQ(read({}), "two\nthree\nfour\n");
  EXPECT_EQ(read({.tail_lines = 2}), "three\nfour\n");
  EXPECT_EQ(read({.tail_lines = 99}), "two\nthree\nfour\n");
  EXPECT_EQ(open_log(directory, "c", {.run = LogOptions::Run::kPrevious}).error().code(),
            Code::kNotFound);
  EXPECT_EQ(open_log(directory, "../c", {}).error().code(), Code::kInvalid);
  EXPECT_EQ(LogOptions::parse("tailLines=x").error().code(), Code::kInvalid);
  EXPECT_EQ(LogOptions::parse("tailLines=5&follow=true").value().tail_lines, 5u);
  std::filesystem::remove_all(directory);
}

class RotatedLogs : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "logs_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  os::Path log() const { return directory_ / "c.log"; }
  os::Path older() const { return directory_ / "c.log.1"; }

  os::Path directory_;
};

TEST_F(RotatedLogs, RotationKeepsTheLastWholeLines) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "line " + std::to_string(i) + "\n";
  for (const std::uint64_t limit : {50u, 1000u, 150000u}) {
    std::ofstream(log()) << text;
    ASSERT_TRUE(rotate_log(log(), limit).ok());
    EXPECT_EQ(std::filesystem::file_size(log()), 0u);
    const std::string older_text = os::read_file(os::real_file_system(), older()).value();
    EXPECT_LE(older_text.size(), limit);
    EXPECT_GE(older_text.size(), limit - 11);
    EXPECT_TRUE(text.ends_with("\n" + older_text)) << older_text.substr(0, 20);
  }
  // A line longer than the limit is cut, not lost.
  std::ofstream(log()) << std::string(5000, 'x') << "\n";
  ASSERT_TRUE(rotate_log(log(), 100).ok());
  EXPECT_EQ(os::read_file(os::real_file_system(), older()).value(), std::string(99, 'x') + "\n");
  // A link in the log's place is not followed.
  std::ofstream(directory_ / "other") << text;
  std::filesystem::remove(log());
  std::filesystem::create_symlink("other", log());
  EXPECT_FALSE(rotate_log(log(), 100).ok());
  EXPECT_EQ(std::filesystem::file_size(directory_ / "other"), text.size());
}

TEST_F(RotatedLogs, FastWriterCannotExceedTheLimit) {
  constexpr std::uint64_t kLimit = 100000, kTotal = 20u << 20;
  std::atomic<bool> wrote{false};
  std::jthread writer([&] {
    std::ofstream out(log(), std::ios::app);
    const std::string lines(4096, '\n');
    for (std::uint64_t done = 0; done < kTotal; done += lines.size()) out << lines << std::flush;
    wrote = true;
  });
  for (bool last = false; !last;) {
    last = wrote;
    ASSERT_TRUE(rotate_log(log(), kLimit).ok());
    if (std::filesystem::exists(older())) {
      ASSERT_LE(std::filesystem::file_size(older()), kLimit);
    }
  }
  EXPECT_LE(std::filesystem::file_size(log()), kLimit);
}

TEST_F(RotatedLogs, LargeLogsAreReadInPieces) {
  const std::string lines = std::string(1023, 'o') + "\n";
  {
    std::ofstream out(older());
    for (int i = 0; i < 3000; ++i) out << lines;
  }
  std::ofstream(log()) << "newest\n";
  const auto read = [&](LogOptions options) {
    auto stream = open_log(directory_, "c", options).value();
    std::size_t total = 0;
    std::string last;
    while (auto piece = stream->read()) {
      EXPECT_LE(piece->size(), 64u << 10);
      total += piece->size();
      last = *piece;
    }
    EXPECT_EQ(last, "newest\n");
    return total;
  };
  EXPECT_EQ(read({}), 3000 * lines.size() + 7);
  EXPECT_EQ(read({.tail_lines = 2001}), 2000 * lines.size() + 7);
}

TEST(Images, ImageNamesAndFlagsAreParsed) {
  EXPECT_EQ(image_base_name("varda-serve"), "varda-serve");
  EXPECT_EQ(image_base_name("localhost:5000/a/varda-serve:1.2@sha256:00"), "varda-serve");
  EXPECT_EQ(parse_image_flag("a=/bin/a b c").value(),
            std::pair(std::string("a"), std::string("/bin/a b c")));
  for (const char* bad : {"a", "=b", "a="})
    EXPECT_EQ(parse_image_flag(bad).error().code(), Code::kInvalid) << bad;
}

}  // namespace
}  // namespace varda::node
