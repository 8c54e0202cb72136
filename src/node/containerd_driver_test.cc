// The containerd driver against an in-memory runtime that implements the protocol. With the pod
// runner: containerd_pods_test.cc.
#include "node/containerd_driver.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/eventually.h"
#include "codec/protobuf.h"
#include "codec/yaml.h"
#include "net/testing/grpc_server.h"
#include "node/end_containers.h"
#include "node/testing/containerd_fixture.h"
#include "node/testing/fakes.h"

namespace varda::node {
namespace containerd_driver_test {

using std::chrono::seconds;
using testing::ContainerdTest;
using testing::FakeRuntime;
using Fault = FakeRuntime::Fault;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kCreated = 0, kRunning = 1;

/// All values of a string or message field; path {15, 2, 13} is field 13 of the message in field 2
/// of that in field 15.
std::vector<std::string> fields(const std::string& message, std::vector<std::uint32_t> path) {
  std::vector<std::string> found;
  codec::ProtoReader in(message);
  while (in.next()) {
    if (in.field() == path.front()) found.push_back(in.text());
  }
  path.erase(path.begin());
  if (path.empty() || found.empty()) return found;
  return fields(found.back(), path);
}

TEST_F(ContainerdTest, ContainerMatchesItsConfig) {
  ContainerConfig wanted = config();
  wanted.command = {"/bin/serve"};
  wanted.arguments = {"--port", ""};
  wanted.environment = {{"A", "1"}, {"EMPTY", ""}};
  wanted.mounts = {{.source = "/data", .target = "/models", .read_only = true}};
  const auto id = start(wanted);
  ASSERT_TRUE(id.ok()) << id.error();
  const FakeRuntime::Container c = runtime_.containers().at(*id);
  EXPECT_EQ(c.state, kRunning);
  EXPECT_EQ(c.name, "c");
  EXPECT_EQ(c.image, "docker.io/library/web:latest");
  EXPECT_THAT(c.command, ElementsAre("/bin/serve"));
  EXPECT_THAT(c.arguments, ElementsAre("--port", ""));
  EXPECT_EQ(c.environment, (std::map<std::string, std::string>{
                               {"A", "1"}, {"EMPTY", ""}, {"POD_IP", "10.1.0.1"}}));
  EXPECT_EQ(c.mounts, (std::map<std::string, std::string>{{"/models", "/data"}}));
  EXPECT_EQ(c.log_path, "c.log");
  EXPECT_EQ(c.labels.at("io.kubernetes.pod.name"), "web");
  EXPECT_EQ(c.labels.at("io.kubernetes.pod.namespace"), "default");
  EXPECT_EQ(c.labels.at("io.kubernetes.pod.uid"), "uid-web");
  EXPECT_EQ(c.labels.at("io.kubernetes.container.name"), "c");
  const FakeRuntime::Sandbox s = runtime_.sandboxes().at(c.sandbox);
  EXPECT_EQ(s.hostname, "web");
  EXPECT_EQ(s.log_directory, "/pods/web");
  EXPECT_EQ(s.network, 0);
}

TEST_F(ContainerdTest, ContainersOfAPodShareOneSandboxAndItsAddress) {
  const auto address = driver_->prepare_pod(config().pod);
  ASSERT_TRUE(address.ok()) << address.error();
  EXPECT_EQ(*address, "10.1.0.1");
  EXPECT_EQ(*driver_->prepare_pod(config().pod), *address);
  ASSERT_TRUE(start(config("a")).ok());
  ASSERT_TRUE(start(config("b")).ok());
  EXPECT_THAT(runtime_.sandboxes(), SizeIs(1));
  PodConfig other = config().pod;
  other.uid = "uid-other";
  other.host_network = true;
  EXPECT_EQ(*driver_->prepare_pod(other), "");
  EXPECT_THAT(runtime_.sandboxes(), SizeIs(2));
}

TEST_F(ContainerdTest, NodeNetworkPodGetsNoSandboxAddress) {
  driver_ =
      make_containerd_driver({.root = root_, .pod_network = PodNetwork::kNode}, runtime_.client());
  EXPECT_EQ(*driver_->prepare_pod(config().pod), "");
  ASSERT_TRUE(driver_->start(config()).ok());
  const FakeRuntime::Sandbox sandbox = runtime_.sandboxes().begin()->second;
  EXPECT_EQ(sandbox.network, 2);
  EXPECT_EQ(sandbox.hostname, "");
}

TEST_F(ContainerdTest, NodeNetworkPodLosesNetworkSysctls) {
  const auto sysctls = [&](const ContainerConfig& wanted) {
    EXPECT_TRUE(start(wanted).ok());
    std::set<std::string> names;
    for (const std::string& entry : fields(runtime_.sandboxes().rbegin()->second.config, {8, 3}))
      names.insert(fields(entry, {1}).at(0));
    EXPECT_TRUE(driver_->remove_pod(wanted.pod.uid).ok());
    return names;
  };
  ContainerConfig wanted = config();
  wanted.pod.sysctls = {{"net.ipv4.ip_unprivileged_port_start", "0"},
                        {"net/core/somaxconn", "9"},
                        {"kernel.shm_rmid_forced", "1"}};
  EXPECT_THAT(sysctls(wanted), SizeIs(3));
  driver_ =
      make_containerd_driver({.root = root_, .pod_network = PodNetwork::kNode}, runtime_.client());
  EXPECT_THAT(sysctls(wanted), ElementsAre("kernel.shm_rmid_forced"));
}

// Field 13 masked_paths, 14 readonly_paths of LinuxContainerSecurityContext: a runtime hides only
// the paths that it is given.
TEST_F(ContainerdTest, MachinePathsAreHiddenUnlessPrivilegedOrUnmasked) {
  int attempt = 0;
  const auto paths = [&](std::uint32_t field, const Security& security) {
    ContainerConfig wanted = config("c", ++attempt);
    wanted.security = security;
    const std::string config_sent = sent(wanted);
    EXPECT_NE(config_sent, "");
    return fields(config_sent, {15, 2, field});
  };
  EXPECT_THAT(paths(14, {}), ElementsAre("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
                                         "/proc/sysrq-trigger"));
  EXPECT_THAT(paths(13, {}), ::testing::IsSupersetOf({"/proc/kcore", "/proc/keys",
                                                      "/proc/timer_list", "/sys/firmware"}));
  for (const std::uint32_t field : {13u, 14u}) {
    EXPECT_THAT(paths(field, {.privileged = true}), IsEmpty());
    EXPECT_THAT(paths(field, {.unmasked_proc = true}), IsEmpty());
  }
}

// Field 15 seccomp: a present but empty message means the runtime's default profile.
TEST_F(ContainerdTest, SeccompProfileIsSentOnlyIfConfigured) {
  ContainerConfig wanted = config();
  EXPECT_THAT(fields(sent(wanted), {15, 2, 15}), IsEmpty());
  wanted.name.attempt = 1;
  wanted.security.seccomp =
      SeccompProfile{.type = SeccompProfile::Type::kRuntimeDefault, .localhost_path = ""};
  EXPECT_THAT(fields(sent(wanted), {15, 2, 15}), ElementsAre(""));
}

// Field 1 of LinuxPodSandboxConfig. With systemd, runc accepts only NAME.slice; with cgroupfs that
// is an ordinary name.
TEST_F(ContainerdTest, CgroupParentMatchesContainerdConfig) {
  const std::string systemd =
      R"({"containerd": {"defaultRuntimeName": "runc", "runtimes": {"runc": {"options": {"SystemdCgroup": true}}}}})";
  const std::string other =
      R"({"containerd": {"defaultRuntimeName": "kata", "runtimes": {"runc": {"options": {"SystemdCgroup": true}}}}})";
  const std::string systemd_config =
      codec::ProtoWriter().message(1, [](codec::ProtoWriter&) {}).bytes();
  const std::string cgroupfs_config =
      codec::ProtoWriter().message(1, [](codec::ProtoWriter& m) { m.number(1, 1); }).bytes();
  struct Case {
    std::string status;
    std::optional<std::string> runtime_config;
    std::string parent;
  };
  const Case cases[] = {
      {"", std::nullopt, ""},
      {"no json", std::nullopt, ""},
      {"{}", std::nullopt, "/varda"},
      {other, std::nullopt, "/varda"},
      {systemd, std::nullopt, "varda.slice"},
      {R"({"systemdCgroup": true})", std::nullopt, "varda.slice"},
      {systemd, "", "varda.slice"},
      {systemd, cgroupfs_config, "/varda"},
      {"{}", systemd_config, "varda.slice"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.status + (c.runtime_config ? " and its own answer" : ""));
    runtime_.set_config(c.status, c.runtime_config);
    ASSERT_TRUE(start(config()).ok());
    const auto parent = fields(runtime_.sandboxes().begin()->second.config, {8, 1});
    EXPECT_EQ(parent, c.parent.empty() ? std::vector<std::string>() : std::vector{c.parent});
    ASSERT_TRUE(driver_->remove_pod("uid-web").ok());
  }
}

TEST_F(ContainerdTest, GroupWithoutUserUsesUserOfTheImage) {
  int attempt = 0;
  const auto user = [&](std::optional<int> uid, const std::string& name) {
    runtime_.set_image_user(uid, name);
    ContainerConfig wanted = config("c", ++attempt);
    wanted.security.group = 2000;
    const std::string config_sent = sent(wanted);
    EXPECT_THAT(fields(config_sent, {15, 2, 12}), SizeIs(1));
    const auto number = fields(config_sent, {15, 2, 5});
    const auto text = fields(config_sent, {15, 2, 6});
    if (number.empty()) return text.empty() ? "nobody at all" : text.front();
    codec::ProtoReader in(number.front());
    return text.empty() ? std::to_string(in.next() ? in.number() : 0) : "both";
  };
  EXPECT_EQ(user(65532, ""), "65532");
  EXPECT_EQ(user(std::nullopt, "nobody"), "nobody");
  EXPECT_EQ(user(std::nullopt, ""), "0");
}

TEST_F(ContainerdTest, StartingContainerdIsUnavailable) {
  runtime_.fail_next("ImageStatus", Fault::kNotDone,
                     Error(Code::kInternal, "UNKNOWN: server is not initialized yet"));
  EXPECT_EQ(driver_->check_image("web").error().code(), Code::kUnavailable);
  EXPECT_TRUE(driver_->check_image("web").ok());
}

TEST_F(ContainerdTest, SandboxInWrongNetworkIsReplaced) {
  driver_->on_exit([] {});
  const auto id = start(config());
  ASSERT_TRUE(id.ok());
  driver_ =
      make_containerd_driver({.root = root_, .pod_network = PodNetwork::kNode}, runtime_.client());
  EXPECT_EQ(driver_->prepare_pod(config().pod).error().code(), Code::kUnavailable);
  EXPECT_EQ(wait_exit(*id, config().name).code, 137);
  EXPECT_EQ(*driver_->prepare_pod(config().pod), "");
  ASSERT_THAT(runtime_.sandboxes(), SizeIs(1));
  EXPECT_EQ(runtime_.sandboxes().begin()->second.network, 2);
}

TEST_F(ContainerdTest, MissingPodNetworkErrorNamesTheFlag) {
  runtime_.fail_next("RunPodSandbox", Fault::kNotDone,
                     Error(Code::kInternal, "cni plugin not initialized"));
  const auto address = driver_->prepare_pod(config().pod);
  ASSERT_FALSE(address.ok());
  EXPECT_THAT(address.error().message(), HasSubstr("cni plugin not initialized"));
  EXPECT_THAT(address.error().message(), HasSubstr("--pod-network node"));
}

TEST_F(ContainerdTest, ExitIsReportedWithCodeAndWakesTheRunner) {
  std::atomic<int> wakes = 0;
  driver_->on_exit([&] { ++wakes; });
  const auto id = start(config());
  ASSERT_TRUE(id.ok());
  EXPECT_FALSE(driver_->poll(*id, config().name));
  runtime_.end(*id, 3);
  ASSERT_TRUE(eventually("the runner is woken", [&] { return wakes > 0; }));
  const auto exit = driver_->poll(*id, config().name);
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->code, 3);
  EXPECT_TRUE(exit->known);
  EXPECT_EQ(exit->reason, "");
}

TEST_F(ContainerdTest, OomReasonIsKeptAndUnobservedExitIsUnknown) {
  driver_->on_exit([] {});
  auto id = start(config());
  runtime_.end(*id, 137, "OOMKilled");
  EXPECT_EQ(wait_exit(*id, config().name).reason, "OOMKilled");
  id = start(config("c", 1));
  runtime_.end(*id, 255, "Unknown");
  const ContainerExit unknown = wait_exit(*id, config("c", 1).name);
  EXPECT_FALSE(unknown.known);
  EXPECT_EQ(unknown.code, 137);
  EXPECT_FALSE(driver_->poll("gone", config().name)->known);
  EXPECT_FALSE(driver_->poll("", config().name)->known);
}

TEST_F(ContainerdTest, ContainersCountAsRunningDuringContainerdOutage) {
  driver_->on_exit([] {});
  const auto id = start(config());
  life();
  runtime_.set_down(true);
  EXPECT_FALSE(driver_->poll(*id, config().name));
  EXPECT_EQ(driver_->find().error().code(), Code::kUnavailable);
  runtime_.set_down(false);
  EXPECT_FALSE(driver_->poll(*id, config().name));
}

TEST_F(ContainerdTest, TerminateMayBeIgnoredAndKillMayNot) {
  runtime_.set_obeys_terminate(false);
  driver_->on_exit([] {});
  const auto id = start(config());
  driver_->stop(*id, config().name, StopSignal::kTerminate);
  driver_->stop(*id, config().name, StopSignal::kTerminate);
  EXPECT_FALSE(driver_->poll(*id, config().name));
  driver_->stop(*id, config().name, StopSignal::kKill);
  EXPECT_EQ(wait_exit(*id, config().name).code, 137);
  runtime_.set_obeys_terminate(true);
  const auto next = start(config("c", 1));
  driver_->stop(*next, config("c", 1).name, StopSignal::kTerminate);
  EXPECT_EQ(wait_exit(*next, config("c", 1).name).code, 143);
}

TEST_F(ContainerdTest, FailedStopSignalIsRetried) {
  driver_->on_exit([] {});
  const auto id = start(config());
  runtime_.fail_next("StopContainer", Fault::kNotDone);
  driver_->stop(*id, config().name, StopSignal::kTerminate);
  EXPECT_EQ(wait_exit(*id, config().name).code, 143);
}

TEST_F(ContainerdTest, DestructorDoesNotWaitForContainers) {
  runtime_.set_obeys_terminate(false);
  const auto id = start(config());
  driver_->stop(*id, config().name, StopSignal::kTerminate);
  ASSERT_TRUE(runtime_.wait_for(
      [](const FakeRuntime& r) { return r.changes().back() == "StopContainer"; }));
  driver_.reset();
  EXPECT_THAT(runtime_.running(), ElementsAre(*id));
}

TEST_F(ContainerdTest, RestartedDriverFindsOwnContainersOnly) {
  const auto id = start(config("a", 2));
  const auto ended = start(config("b"));
  runtime_.end(*ended, 0);
  auto other = make_containerd_driver({.root = root_ / "other"}, runtime_.client());
  ContainerConfig foreign = config("a", 2);
  foreign.pod.uid = foreign.name.pod_uid = "uid-stranger";
  ASSERT_TRUE(other->prepare_pod(foreign.pod).ok());
  ASSERT_TRUE(other->start(foreign).ok());
  life();
  const auto found = driver_->find();
  ASSERT_TRUE(found.ok());
  ASSERT_THAT(*found, SizeIs(2));
  EXPECT_EQ(found->front().id, *id);
  EXPECT_EQ(found->front().name, config("a", 2).name);
  EXPECT_FALSE(found->front().ended);
  EXPECT_EQ(found->back().id, *ended);
  EXPECT_TRUE(found->back().ended);
  EXPECT_THAT(*driver_->pods(), ElementsAre("uid-web"));
  EXPECT_EQ(driver_->poll(*ended, config("b").name)->code, 0);  // containerd remembers
}

TEST_F(ContainerdTest, EndedSandboxIsReplacedAfterItsContainers) {
  driver_->on_exit([] {});
  const auto id = start(config());
  const std::string before = runtime_.containers().at(*id).sandbox;
  runtime_.end_sandbox(before);
  EXPECT_EQ(driver_->prepare_pod(config().pod).error().code(), Code::kUnavailable);
  EXPECT_EQ(wait_exit(*id, config().name).code, 137);
  const auto address = driver_->prepare_pod(config().pod);
  ASSERT_TRUE(address.ok()) << address.error();
  EXPECT_EQ(*address, "10.1.0.3");
  const auto now = runtime_.sandboxes();
  ASSERT_THAT(now, SizeIs(1));
  EXPECT_EQ(now.begin()->second.attempt, 1);
  EXPECT_TRUE(driver_->start(config("c", 1)).ok());
}

TEST_F(ContainerdTest, ContainerRestartsLeaveOneRecord) {
  driver_->on_exit([] {});
  for (int attempt = 0; attempt < 4; ++attempt) {
    const auto id = start(config("c", attempt));
    ASSERT_TRUE(id.ok()) << id.error();
    runtime_.end(*id, 1);
    EXPECT_EQ(wait_exit(*id, config("c", attempt).name).code, 1);
  }
  EXPECT_THAT(runtime_.containers(), SizeIs(1));
}

TEST_F(ContainerdTest, MissingImageErrorExplainsTheImport) {
  EXPECT_TRUE(driver_->check_image("web").ok());
  EXPECT_TRUE(driver_->check_image("docker.io/library/web:latest").ok());
  const Status missing = driver_->check_image("varda-serve");
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_THAT(missing.error().message(), HasSubstr("docker.io/library/varda-serve:latest"));
  EXPECT_THAT(missing.error().message(), HasSubstr("-n k8s.io images import"));
  // Bare names of varda's programs resolve to the images of `make images`.
  runtime_.set_images({"localhost/varda-serve:" VARDA_VERSION, "localhost/web:" VARDA_VERSION});
  EXPECT_TRUE(driver_->check_image("varda-serve").ok());
  EXPECT_FALSE(driver_->check_image("web").ok());
  EXPECT_TRUE(driver_->check_image("localhost/web:" VARDA_VERSION).ok());
  runtime_.set_down(true);
  EXPECT_EQ(driver_->check_image("web").error().code(), Code::kUnavailable);
}

TEST_F(ContainerdTest, ImageNamesAreCompletedLikeContainerd) {
  const std::pair<const char*, const char*> cases[] = {
      {"web", "docker.io/library/web:latest"},
      {"web:1", "docker.io/library/web:1"},
      {"me/web", "docker.io/me/web:latest"},
      {"localhost/web", "localhost/web:latest"},
      {"localhost:5000/web", "localhost:5000/web:latest"},
      {"registry.example.com/a/web:2", "registry.example.com/a/web:2"},
      {"web@sha256:00", "docker.io/library/web@sha256:00"},
  };
  for (const auto& [name, full] : cases) EXPECT_EQ(cri_image_name(name), full);
}

TEST_F(ContainerdTest, NonRootContainerIsNotStartedAsRoot) {
  ContainerConfig wanted = config();
  wanted.security.must_not_be_root = true;
  EXPECT_THAT(start(wanted).error().message(), HasSubstr("image will run as root"));
  runtime_.set_image_user(std::nullopt, "nobody");
  EXPECT_THAT(start(wanted).error().message(), HasSubstr("non-numeric user (nobody)"));
  wanted.security.user = 0;
  EXPECT_FALSE(start(wanted).ok());
  wanted.security.user = 1000;
  EXPECT_TRUE(start(wanted).ok());
  runtime_.set_image_user(65532, "");
  wanted.security.user.reset();
  wanted.name.attempt = 1;
  EXPECT_TRUE(start(wanted).ok());
}

TEST_F(ContainerdTest, ExecRunsInTheNamedContainer) {
  EXPECT_EQ(driver_->exec(Context::background(), config(), {"true"}).error().code(),
            Code::kNotFound);
  ASSERT_TRUE(start(config()).ok());
  runtime_.set_exec(7);
  EXPECT_EQ(*driver_->exec(Context::background(), config(), {"true"}), 7);
  EXPECT_EQ(driver_->exec(Context::background(), config("c", 1), {"true"}).error().code(),
            Code::kNotFound);
}

// Every modifying call fails once, without effect or with its answer lost; then the test retries
// like the runner.
TEST_F(ContainerdTest, FailedCallLeavesNoDuplicateOrLeftover) {
  for (const char* method : {"ListPodSandbox", "RunPodSandbox", "PodSandboxStatus",
                             "ListContainers", "ImageStatus", "CreateContainer", "StartContainer",
                             "RemoveContainer", "StopPodSandbox", "RemovePodSandbox"}) {
    for (const Fault fault : {Fault::kNotDone, Fault::kAnswerLost}) {
      SCOPED_TRACE(std::string(method) + (fault == Fault::kNotDone ? " not done" : " answer lost"));
      driver_->on_exit([] {});
      // The previous run has ended, so that there is something to remove.
      auto id = start(config());
      ASSERT_TRUE(id.ok()) << id.error();
      runtime_.end(*id, 1);
      EXPECT_EQ(wait_exit(*id, config().name).code, 1);
      // Its sandbox has ended too, unless that would remove the container.
      if (std::string(method) != "RemoveContainer")
        runtime_.end_sandbox(runtime_.sandboxes().begin()->first);
      runtime_.fail_next(method, fault);
      const bool started_all_the_same =
          std::string(method) == "StartContainer" && fault == Fault::kAnswerLost;
      EXPECT_EQ(start(config("c", 1)).ok(), started_all_the_same);
      id = start(config("c", 1));
      ASSERT_TRUE(id.ok()) << id.error();
      EXPECT_THAT(runtime_.running(), ElementsAre(*id));
      EXPECT_THAT(runtime_.sandboxes(), SizeIs(1));
      EXPECT_THAT(runtime_.containers(), SizeIs(1));
      if (!driver_->remove_pod("uid-web").ok()) {
        ASSERT_TRUE(driver_->remove_pod("uid-web").ok());
      }
      EXPECT_THAT(runtime_.containers(), IsEmpty());
      EXPECT_THAT(runtime_.sandboxes(), IsEmpty());
      life();
    }
  }
}

TEST_F(ContainerdTest, StartWithLostAnswerIsAdopted) {
  ASSERT_TRUE(driver_->prepare_pod(config().pod).ok());
  runtime_.fail_next("StartContainer", Fault::kAnswerLost);
  runtime_.fail_next("ContainerStatus", Fault::kNotDone);
  EXPECT_FALSE(driver_->start(config()).ok());
  ASSERT_THAT(runtime_.running(), SizeIs(1));
  EXPECT_EQ(*driver_->start(config()), runtime_.running().front());
  EXPECT_THAT(runtime_.containers(), SizeIs(1));
}

TEST_F(ContainerdTest, EndedStartWithLostAnswerIsAdopted) {
  driver_->on_exit([] {});
  ASSERT_TRUE(driver_->prepare_pod(config().pod).ok());
  runtime_.fail_next("StartContainer", Fault::kAnswerLost);
  runtime_.fail_next("ContainerStatus", Fault::kNotDone);
  EXPECT_FALSE(driver_->start(config()).ok());
  const std::string ran = runtime_.running().front();
  runtime_.end(ran, 6);
  EXPECT_EQ(*driver_->start(config()), ran);
  EXPECT_EQ(wait_exit(ran, config().name).code, 6);
}

TEST_F(ContainerdTest, ContainerThatFailedToStartIsReplaced) {
  ASSERT_TRUE(driver_->prepare_pod(config().pod).ok());
  runtime_.fail_next("StartContainer", Fault::kNotDone, Error(Code::kInternal, "no such program"));
  runtime_.fail_next("RemoveContainer", Fault::kNotDone);
  EXPECT_FALSE(driver_->start(config()).ok());
  ASSERT_THAT(runtime_.containers(), SizeIs(1));
  EXPECT_THAT(*driver_->find(), IsEmpty());
  ASSERT_TRUE(driver_->start(config()).ok());
  EXPECT_THAT(runtime_.containers(), SizeIs(1));
  EXPECT_THAT(runtime_.running(), SizeIs(1));
}

TEST_F(ContainerdTest, CreatedContainerIsReplacedAfterDriverRestart) {
  ASSERT_TRUE(driver_->prepare_pod(config().pod).ok());
  runtime_.fail_next("StartContainer", Fault::kNotDone);
  runtime_.fail_next("RemoveContainer", Fault::kNotDone);
  EXPECT_FALSE(driver_->start(config()).ok());
  ASSERT_EQ(runtime_.containers().begin()->second.state, kCreated);
  life();
  EXPECT_THAT(*driver_->find(), IsEmpty());
  ASSERT_TRUE(driver_->start(config()).ok());
  EXPECT_THAT(runtime_.containers(), SizeIs(1));
  EXPECT_THAT(runtime_.running(), SizeIs(1));
}

// ---- over a socket

class ContainerdSocketTest : public ContainerdTest {
 protected:
  void SetUp() override {
    ContainerdTest::SetUp();
    socket_ = (root_ / "c.sock").string();
  }
  /// Serves the in-memory runtime at a real socket.
  std::unique_ptr<net::testing::CannedGrpcServer> serve() {
    return std::make_unique<net::testing::CannedGrpcServer>(
        socket_, [this](const net::testing::CannedGrpcCall& call) {
          const auto answer = runtime_.call(Context::background(), call.method, call.message);
          if (answer.ok()) return net::testing::GrpcReply::of(*answer);
          const Code code = answer.error().code();
          return net::testing::GrpcReply::error(code == Code::kNotFound      ? 5
                                                : code == Code::kUnsupported ? 12
                                                                             : 2,
                                                answer.error().message());
        });
  }
  std::string socket_;
};

TEST_F(ContainerdSocketTest, MissingContainerdErrorNamesSocketAndFlag) {
  const auto driver =
      make_containerd_driver(Context::background(), {.root = root_, .socket = socket_});
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.error().code(), Code::kUnavailable);
  EXPECT_THAT(driver.error().message(), HasSubstr(socket_));
  EXPECT_THAT(driver.error().message(), HasSubstr("--containerd-socket"));
}

TEST_F(ContainerdSocketTest, MissingCriServiceIsReported) {
  const net::testing::CannedGrpcServer server(socket_, [](const net::testing::CannedGrpcCall&) {
    return net::testing::GrpcReply::error(12, "unknown service runtime.v1.RuntimeService");
  });
  const auto driver =
      make_containerd_driver(Context::background(), {.root = root_, .socket = socket_});
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.error().code(), Code::kUnsupported);
  EXPECT_THAT(driver.error().message(), HasSubstr("does not serve CRI"));
}

TEST_F(ContainerdSocketTest, EndContainersWorksWithoutADriver) {
  const auto server = serve();
  auto driver = make_containerd_driver(Context::background(), {.root = root_, .socket = socket_});
  ASSERT_TRUE(driver.ok()) << driver.error();
  ASSERT_TRUE((*driver)->prepare_pod(config().pod).ok());
  ASSERT_TRUE((*driver)->start(config("a")).ok());
  ASSERT_TRUE((*driver)->start(config("b")).ok());
  driver->reset();
  end_containers_of_others(root_, "containerd", seconds(1));
  EXPECT_THAT(runtime_.running(), SizeIs(2));
  EXPECT_EQ(end_containers(root_, seconds(1)).value(), 2u);
  EXPECT_THAT(runtime_.containers(), IsEmpty());
  EXPECT_THAT(runtime_.sandboxes(), IsEmpty());
  EXPECT_EQ(end_containers(root_, seconds(1)).value(), 0u);
}

TEST_F(ContainerdSocketTest, StuckPodIsNamedAndOthersAreRemoved) {
  auto server = serve();
  auto driver = make_containerd_driver(Context::background(), {.root = root_, .socket = socket_});
  ASSERT_TRUE(driver.ok()) << driver.error();
  ContainerConfig other = config();
  other.pod.uid = other.name.pod_uid = "other";
  for (const ContainerConfig& c : {config(), other}) {
    ASSERT_TRUE((*driver)->prepare_pod(c.pod).ok());
    ASSERT_TRUE((*driver)->start(c).ok());
  }
  driver->reset();
  for (const char* method : {"StopPodSandbox", "RemovePodSandbox"}) {
    const std::size_t before = runtime_.sandboxes().size();
    runtime_.fail_next(method, testing::FakeRuntime::Fault::kNotDone,
                       Error(Code::kInternal, "device or resource busy"));
    const auto ended = end_containers(root_, seconds(1));
    ASSERT_FALSE(ended.ok()) << method;
    EXPECT_THAT(ended.error().message(), HasSubstr("device or resource busy"));
    EXPECT_THAT(ended.error().message(),
                HasSubstr("crictl --runtime-endpoint unix://" + socket_ + " rmp -f"));
    EXPECT_LE(runtime_.sandboxes().size(), std::min<std::size_t>(before, 1)) << method;
  }
  EXPECT_THAT(runtime_.sandboxes(), SizeIs(1));
  // Without containerd, the note stays.
  server.reset();
  const auto away = end_containers(root_, seconds(1));
  ASSERT_FALSE(away.ok());
  EXPECT_THAT(away.error().message(), HasSubstr("pods --label edgeai.io/runner="));
  server = serve();
  EXPECT_TRUE(end_containers(root_, seconds(1)).ok());
  EXPECT_THAT(runtime_.sandboxes(), IsEmpty());
}

TEST_F(ContainerdSocketTest, SwitchToProcessDriverRemovesContainerdPods) {
  const auto server = serve();
  auto driver = make_containerd_driver(Context::background(), {.root = root_, .socket = socket_});
  ASSERT_TRUE(driver.ok()) << driver.error();
  ASSERT_TRUE((*driver)->prepare_pod(config().pod).ok());
  ASSERT_TRUE((*driver)->start(config()).ok());
  driver->reset();
  end_containers_of_others(root_, "process", seconds(1));
  EXPECT_THAT(runtime_.sandboxes(), IsEmpty());
}

}  // namespace containerd_driver_test
}  // namespace varda::node
