#include "os/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/testing/eventually.h"
#include "os/testing/child.h"

namespace varda::os {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Processes : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "process_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { ASSERT_TRUE(real_file_system().remove_all(root_).ok()); }

  ProcessOptions shell(const std::string& script) const {
    ProcessOptions options;
    options.program = "/bin/sh";
    options.arguments = {"-c", script};
    options.environment = {{"PATH", "/usr/bin:/bin"}};
    options.standard_output = root_ / "out";
    return options;
  }
  static ExitStatus finish(const ProcessId& id) {
    const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
    EXPECT_TRUE(wait_for_exit(ctx, id).ok());
    std::optional<ExitStatus> status;
    EXPECT_TRUE(eventually("the process has an exit status", [&] {
      status = real_processes().poll(id).value();
      return status.has_value();
    }));
    return status.value_or(ExitStatus{});
  }
  std::string output() const {
    return read_file(real_file_system(), root_ / "out").value_or("<none>");
  }
  std::string run(const ProcessOptions& options) const {
    auto id = real_processes().start(options);
    if (!id.ok()) return id.error().message();
    const ExitStatus status = finish(*id);
    return output() + (status.code == 0 ? "" : "exit " + std::to_string(status.code));
  }

  Path root_;
};

TEST_F(Processes, ExitCodeAndSignalAreReported) {
  EXPECT_EQ(finish(real_processes().start(shell("exit 7")).value()).code, 7);
  const ProcessId id = real_processes().start(shell("sleep 60")).value();
  EXPECT_TRUE(alive(id));
  EXPECT_FALSE(real_processes().poll(id).value());
  ASSERT_TRUE(signal_process(id, SIGKILL, true).ok());
  const ExitStatus status = finish(id);
  EXPECT_EQ(status.code, 137);
  EXPECT_EQ(status.signal, SIGKILL);
  EXPECT_FALSE(alive(id));
  EXPECT_EQ(signal_process(id, SIGTERM, false).error().code(), Code::kNotFound);
}

TEST_F(Processes, FailedExecIsReturnedByStart) {
  ProcessOptions options = shell("");
  options.program = "/does/not/exist";
  EXPECT_EQ(real_processes().start(options).error().code(), Code::kNotFound);
  options.program = "/etc/passwd";
  EXPECT_EQ(real_processes().start(options).error().code(), Code::kForbidden);
  options.program = "/bin/sh";
  options.working_directory = "/does/not/exist";
  EXPECT_THAT(real_processes().start(options).error().message(), HasSubstr("working directory"));
}

TEST_F(Processes, EnvironmentContainsOnlyGivenVariables) {
  ProcessOptions options = shell("exec env");
  options.environment["ONE"] = "1 and a half";
  const std::string text = run(options);
  EXPECT_THAT(text, HasSubstr("ONE=1 and a half\n"));
  EXPECT_THAT(text, Not(HasSubstr("HOME=")));
}

TEST_F(Processes, DescriptorsAreClosedAndPrivilegesCannotGrow) {
  const int leaked = ::dup(0);  // without close-on-exec
  EXPECT_EQ(run(shell("ls /proc/self/fd | tr '\\n' ' '; grep NoNewPrivs /proc/self/status")),
            "0 1 2 3 NoNewPrivs:\t1\n");
  ::close(leaked);
}

TEST_F(Processes, LimitsAndWorkingDirectoryApply) {
  ProcessOptions options = shell("ulimit -n; pwd");
  options.limits["nofile"] = 77;
  options.working_directory = root_;
  EXPECT_EQ(run(options), "77\n" + root_.string() + "\n");
  options.limits["colour"] = 1;
  EXPECT_EQ(real_processes().start(options).error().code(), Code::kInvalid);
}

TEST_F(Processes, KillingTheGroupEndsGrandchildren) {
  const ProcessId id = real_processes().start(shell("sleep 1000 & echo $!; wait")).value();
  std::string text;
  ASSERT_TRUE(eventually("the shell has written a line", [&] {
    text = output();
    return text.find('\n') != std::string::npos;
  }));
  const ProcessId grandchild = find_process(static_cast<pid_t>(std::stoi(text))).value();
  ASSERT_TRUE(signal_process(id, SIGKILL, true).ok());
  finish(id);
  EXPECT_TRUE(
      wait_for_exit(Context::background().with_timeout(std::chrono::seconds(60)), grandchild).ok());
}

TEST_F(Processes, WaitEndsWithDeadlineAndStopRequest) {
  const ProcessId id = real_processes().start(shell("sleep 1000")).value();
  EXPECT_EQ(wait_for_exit(Context::background().with_timeout(std::chrono::milliseconds(10)), id)
                .error()
                .code(),
            Code::kTimeout);
  std::stop_source stop;
  std::jthread stopper([&] { stop.request_stop(); });
  EXPECT_EQ(wait_for_exit(Context(stop.get_token()), id).error().code(), Code::kCancelled);
  ASSERT_TRUE(signal_process(id, SIGKILL, true).ok());
  finish(id);
}

TEST_F(Processes, PidWithAnotherStartTimeIsAnotherProcess) {
  const ProcessId self = find_process(::getpid()).value();
  ProcessId former = self;
  --former.start_ticks;
  EXPECT_TRUE(alive(self));
  EXPECT_FALSE(alive(former));
  EXPECT_EQ(real_processes().poll(former).value()->code, -1);
  EXPECT_FALSE(real_processes().poll(self).value());
  EXPECT_TRUE(wait_for_exit(Context::background(), former).ok());
  EXPECT_EQ(signal_process(former, 0, false).error().code(), Code::kNotFound);
}

TEST_F(Processes, ThreadsStartProcessesConcurrently) {
  std::vector<std::jthread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        ProcessOptions options = shell("exit 3");
        options.standard_output.clear();
        if (finish(real_processes().start(options).value()).code == 3) ++good;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(good, 40);
}

TEST_F(Processes, ExitWatchReportsEachExitOnce) {
  std::atomic<int> ends{0};
  auto watch = ExitWatch::create([&](const ProcessId&) { ++ends; }).value();
  const ProcessId first = real_processes().start(shell("exit 1")).value();
  const ProcessId second = real_processes().start(shell("sleep 1000")).value();
  watch->add(first);
  watch->add(second);
  ASSERT_TRUE(eventually("the first end is reported", [&] { return ends > 0; }));
  EXPECT_EQ(ends, 1);
  ASSERT_TRUE(signal_process(second, SIGKILL, true).ok());
  ASSERT_TRUE(eventually("the second end is reported", [&] { return ends > 1; }));
  EXPECT_EQ(ends, 2);
  finish(first);
  finish(second);
  watch->add(second);
  EXPECT_EQ(ends, 3);
}

// Programs with threads briefly end like this: the first thread is a zombie until the last one
// ends.
TEST_F(Processes, ProcessIsAliveUntilItsLastThreadEnds) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    ::close(ends[1]);
    std::thread([end = ends[0]] {
      char byte;
      (void)!::read(end, &byte, 1);
      ::_exit(7);
    }).detach();
    ::syscall(SYS_exit, 0);
  }
  ::close(ends[0]);
  const auto first_thread_ended = [&] {
    const std::string stat = read_file(real_file_system(), "/proc/" + std::to_string(pid) + "/stat")
                                 .value_or("");  // "PID (name) Z ..."
    return stat.find(") Z ") != std::string::npos;
  };
  ASSERT_TRUE(eventually("the first thread has ended", first_thread_ended));
  const auto id = find_process(pid);
  EXPECT_TRUE(id.has_value());
  ::close(ends[1]);
  if (!id) {
    ::waitpid(pid, nullptr, 0);
    return;
  }
  EXPECT_EQ(finish(*id).code, 7);
  EXPECT_FALSE(alive(*id));
}

TEST_F(Processes, SelfPathNamesThisProgram) { EXPECT_EQ(self_path().filename(), "os_test"); }

TEST_F(Processes, FilteredCallsAreRefusedAndProgramsRun) {
  ProcessOptions options =
      shell("grep Seccomp: /proc/self/status; unshare -U true 2>&1 || true; echo still | cat");
  options.rights =
      Rights{.capabilities = kAllCapabilities, .ambient = 0, .calls = Calls::kFiltered};
  const std::string text = run(options);
  EXPECT_THAT(text, HasSubstr("Seccomp:\t2\n"));
  EXPECT_THAT(text, HasSubstr("unshare"));
  EXPECT_THAT(text, HasSubstr("Operation not permitted"));
  EXPECT_THAT(text, HasSubstr("still\n"));
}

TEST_F(Processes, RootBecomesAUserWithOnlyGivenRights) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  ProcessOptions options = shell("id -u; id -G; grep -E '^Cap(Prm|Eff|Bnd|Amb)' /proc/self/status");
  options.user = User{.user = 65532, .group = 65531, .groups = {4711}};
  options.rights = Rights{};
  const std::string none = "0000000000000000\n";
  const auto rights = [](const std::string& held, const std::string& ambient) {
    return "CapPrm:\t" + held + "CapEff:\t" + held + "CapBnd:\t" + held + "CapAmb:\t" + ambient;
  };
  EXPECT_EQ(run(options), "65532\n65531 4711\n" + rights(none, none));
  ASSERT_TRUE(real_file_system().remove(root_ / "out").ok());
  const Capabilities port = *capabilities_named("NET_BIND_SERVICE");
  options.rights = Rights{.capabilities = port, .ambient = port, .calls = Calls::kAll};
  EXPECT_EQ(run(options),
            "65532\n65531 4711\n" + rights("0000000000000400\n", "0000000000000400\n"));
}

TEST_F(Processes, OrdinaryUserCannotSwitchUsers) {
  if (::geteuid() == 0) GTEST_SKIP() << "root becomes any user";
  ProcessOptions options = shell("id -u");
  options.user = User{.user = ::geteuid() + 1, .group = ::getegid(), .groups = {}};
  EXPECT_EQ(real_processes().start(options).error().code(), Code::kForbidden);
}

TEST(StopOnSignals, StoppingSignalIsThatOfTheStop) {
  const testing::Ended ended = testing::run_in_child([] {
    const std::stop_token stop = stop_on_signals();
    if (stopping_signal() != 0) return 1;
    ::kill(::getpid(), SIGTERM);
    while (!stop.stop_requested()) ::usleep(1000);
    return stopping_signal() == SIGTERM ? 0 : 2;
  });
  EXPECT_EQ(ended.code, 0) << ended.err;
}

TEST(CapabilityNames, NamesMatchThoseOfTheKernel) {
  EXPECT_EQ(capabilities_named("CHOWN"), Capabilities{1});
  EXPECT_EQ(capabilities_named("CAP_SYS_ADMIN"), Capabilities{1} << 21);
  EXPECT_EQ(capabilities_named("CHECKPOINT_RESTORE"), Capabilities{1} << 40);
  EXPECT_EQ(capabilities_named("ALL"), kAllCapabilities);
  EXPECT_EQ(capabilities_named("SING"), std::nullopt);
}

class Mounts : public Processes {
 protected:
  void SetUp() override {
    Processes::SetUp();
    ASSERT_TRUE(real_file_system().make_directories(root_ / "volume").ok());
    ASSERT_TRUE(
        write_file_atomically(real_file_system(), root_ / "volume" / "file", "content\n").ok());
    ProcessOptions probe = shell("true");
    probe.mounts = {{.source = root_ / "volume", .target = "/varda-probe", .read_only = true}};
    auto id = real_processes().start(probe);
    if (!id.ok() && id.error().code() == Code::kUnsupported) GTEST_SKIP() << id.error().message();
    ASSERT_TRUE(id.ok()) << id.error();
    finish(*id);
  }
};

TEST_F(Mounts, MissingTargetIsCreatedInAPrivateRootOnly) {
  ProcessOptions options = shell(
      "cat /models/digits/file; ls -d /usr /etc/passwd /proc/self/status; touch /models/digits/new "
      "2>/dev/null || echo refused");
  options.mounts = {{.source = root_ / "volume", .target = "/models/digits", .read_only = true}};
  EXPECT_EQ(run(options), "content\n/etc/passwd\n/proc/self/status\n/usr\nrefused\n");
  EXPECT_FALSE(real_file_system().stat("/models").value());
}

TEST_F(Mounts, WritableMountWritesThroughAndOtherPathsRemain) {
  ProcessOptions options =
      shell("echo more >/data/new; cat " + (root_ / "volume" / "new").string());
  options.mounts = {{.source = root_ / "volume", .target = "/data"}};
  options.working_directory = root_ / "volume";
  EXPECT_EQ(run(options), "more\n");
}

TEST_F(Mounts, NestedTargetLeavesTheHostDirectoryUntouched) {
  ProcessOptions options =
      shell("cat /etc/varda-test/deep/file; cat /etc/varda-test/one; head -c 4 /etc/passwd");
  options.mounts = {
      {.source = root_ / "volume" / "file", .target = "/etc/varda-test/one"},
      {.source = root_ / "volume", .target = "/etc/varda-test/deep", .read_only = true}};
  EXPECT_EQ(run(options), "content\ncontent\nroot");
  EXPECT_FALSE(real_file_system().stat("/etc/varda-test").value());
}

TEST_F(Mounts, ExistingTargetIsCoveredAndMountsNest) {
  ProcessOptions options = shell("ls /srv; cat /srv/inner/file");
  ASSERT_TRUE(real_file_system().make_directories(root_ / "outer").ok());
  options.mounts = {{.source = root_ / "volume", .target = "/srv/inner", .read_only = true},
                    {.source = root_ / "outer", .target = "/srv"}};
  EXPECT_EQ(run(options), "inner\ncontent\n");
}

TEST_F(Mounts, KernelSettingsCannotBeWritten) {
  ProcessOptions options = shell(
      "for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger; do (: >>$f) 2>/dev/null && echo "
      "wrote $f; done; "
      "grep -c ' /proc/sys ' /proc/self/mountinfo; echo 0 >/proc/self/oom_score_adj && echo own");
  options.mounts = {{.source = root_ / "volume", .target = "/data"}};
  EXPECT_EQ(run(options), "1\nown\n");
}

// A namespace of an ordinary user has no other groups of that user.
TEST_F(Mounts, UserAndPrimaryGroupOfTheCallerAreKept) {
  ProcessOptions options = shell("id -u; id -g");
  options.mounts = {{.source = root_ / "volume", .target = "/data"}};
  EXPECT_EQ(run(options), std::to_string(::getuid()) + "\n" + std::to_string(::getgid()) + "\n");
}

TEST_F(Mounts, HiddenDirectoryShowsOnlyMountsBelowIt) {
  ASSERT_TRUE(real_file_system().make_directories(root_ / "data" / "pods" / "a").ok());
  ASSERT_TRUE(write_file_atomically(real_file_system(), root_ / "data" / "secret", "token\n").ok());
  const std::string data = (root_ / "data").string();
  ProcessOptions options = shell(
      "cd " + data +
      "; find . | sort; cat pods/a/file secret; touch x pods/y; echo > pods/a/new && echo wrote");
  options.hidden = {root_ / "data", root_ / "data" / "pods", root_ / "missing"};
  options.mounts = {{.source = root_ / "volume", .target = data + "/pods/a"}};
  const std::string text = run(options);
  EXPECT_THAT(text, HasSubstr(".\n./pods\n./pods/a\n./pods/a/file\ncontent\n"));
  EXPECT_THAT(text, Not(HasSubstr("token")));
  EXPECT_THAT(text, HasSubstr("wrote"));
  EXPECT_FALSE(real_file_system().stat(root_ / "data" / "x").value());
  EXPECT_FALSE(real_file_system().stat(root_ / "data" / "pods" / "y").value());
  options.mounts.clear();
  options.hidden = {root_ / "data", root_ / "volume" / "file"};
  options.arguments = {
      "-c", "ls " + data + "; cat " + (root_ / "volume" / "file").string() + "; echo end"};
  EXPECT_TRUE(run(options).ends_with("wrote\nend\n"));
}

TEST_F(Mounts, ReadOnlyRootAllowsWritesInWritableMountsOnly) {
  ASSERT_TRUE(real_file_system().make_directories(root_ / "work").ok());
  ProcessOptions options = shell("touch " + (root_ / "x").string() +
                                 "; echo > /data/x && echo wrote; echo > /dev/null && echo null");
  options.mounts = {{.source = root_ / "work", .target = "/data"}};
  options.read_only_root = true;
  const std::string text = run(options);
  EXPECT_THAT(text, HasSubstr("Read-only file system"));
  EXPECT_THAT(text, HasSubstr("wrote\nnull\n"));
}

// In a user namespace, an ordinary user's process has capabilities that could reveal hidden files.
TEST_F(Mounts, ProcessWithoutRightsHasNoCapability) {
  ProcessOptions options = shell(
      "grep -E '^(Cap|Seccomp:)' /proc/self/status; unshare -m true 2>/dev/null || echo refused");
  options.hidden = {root_ / "volume"};
  options.rights = Rights{};
  const std::string none = "0000000000000000\n";
  EXPECT_EQ(run(options), "CapInh:\t" + none + "CapPrm:\t" + none + "CapEff:\t" + none +
                              "CapBnd:\t" + none + "CapAmb:\t" + none + "Seccomp:\t0\nrefused\n");
}

TEST_F(Mounts, ProcessSeesTheGivenUserInAPrivateRoot) {
  ProcessOptions options = shell("id -u; id -g");
  options.hidden = {root_ / "volume"};
  options.user = User{.user = 4711, .group = 4712, .groups = {}};
  EXPECT_EQ(run(options), "4711\n4712\n");
}

TEST_F(Mounts, MissingSourceAndRelativeTargetAreRefused) {
  ProcessOptions options = shell("true");
  options.mounts = {{.source = root_ / "nothing", .target = "/data"}};
  EXPECT_EQ(real_processes().start(options).error().code(), Code::kNotFound);
  options.mounts = {{.source = root_ / "volume", .target = "data"}};
  EXPECT_EQ(real_processes().start(options).error().code(), Code::kInvalid);
}

}  // namespace
}  // namespace varda::os
