// Pods in containerd: the pod runner over the containerd driver and an in-memory runtime.
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/yaml.h"
#include "node/log_stream.h"
#include "node/pod_runner.h"
#include "node/testing/containerd_fixture.h"
#include "node/testing/fakes.h"

namespace varda::node {
namespace containerd_pods_test {

using std::chrono::seconds;
using testing::ContainerdTest;
using testing::FakeRuntime;
using Fault = FakeRuntime::Fault;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ContainerdPods : public ContainerdTest {
 protected:
  void SetUp() override {
    ContainerdTest::SetUp();
    open();
  }
  void TearDown() override {
    stop();
    ContainerdTest::TearDown();
  }
  void stop() { runner_.reset(); }
  /// Restarts runner and driver over the runtime's state.
  void open() {
    stop();
    life();
    auto opened =
        PodRunner::open({.root = root_, .node_name = "edge0", .node_address = "127.0.0.9"},
                        *driver_, host_, os::real_file_system(), clock_);
    ASSERT_TRUE(opened.ok()) << opened.error();
    runner_ = std::move(opened).value();
  }
  /// Steps, with time passing quickly, until `holds`; at most 20 s of real time.
  bool until(const std::function<bool()>& holds) {
    const SteadyTime end = system_clock().now() + seconds(20);
    while (system_clock().now() < end) {
      (void)runner_->step();
      if (holds()) return true;
      clock_.advance(std::chrono::milliseconds(100));
      std::this_thread::yield();
    }
    return false;
  }
  bool until_status(const std::string& path, const Json& value, const std::string& name = "web") {
    return until([&] { return host_.status(name).at(path) == value; });
  }
  static Json pod(const std::string& name, const std::string& spec) {
    Json object = Json::object(
        {{"metadata",
          Json::object({{"name", name}, {"namespace", "default"}, {"uid", "uid-" + name}})}});
    object.set("spec", codec::parse_yaml(spec).value());
    return object;
  }
  bool until_ready(const std::string& name = "web") {
    return until_status("containerStatuses/0/ready", Json(true), name);
  }
  std::filesystem::path directory() const { return root_ / "pods" / "default_web_uid-web"; }

  testing::ManualClock clock_;
  testing::RecordingHost host_;
  std::unique_ptr<PodRunner> runner_;
};

constexpr const char* kPlain = "{containers: [{name: c, image: web}]}";

TEST_F(ContainerdPods, PodUsesSandboxAddressAndLeavesNothing) {
  runner_->set_desired({pod("web", kPlain)});
  ASSERT_TRUE(until_ready());
  EXPECT_EQ(host_.status("web")["podIP"], Json("10.1.0.1"));
  EXPECT_THAT(host_.status("web").at("containerStatuses/0/containerID").as_string(),
              HasSubstr("containerd://container-"));
  runner_->set_desired({});
  ASSERT_TRUE(until([&] { return host_.has_finished("web"); }));
  EXPECT_THAT(runtime_.containers(), IsEmpty());
  EXPECT_THAT(runtime_.sandboxes(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(directory()));
}

TEST_F(ContainerdPods, EndedContainerIsRestarted) {
  runner_->set_desired({pod("web", kPlain)});
  ASSERT_TRUE(until_ready());
  runtime_.end(runtime_.running().front(), 9);
  ASSERT_TRUE(until_status("containerStatuses/0/restartCount", Json(1)));
  EXPECT_EQ(host_.status("web").at("containerStatuses/0/lastState/terminated/exitCode"), Json(9));
}

TEST_F(ContainerdPods, KilledRunnerFindsItsContainers) {
  runner_->set_desired({pod("web", kPlain)});
  ASSERT_TRUE(until_ready());
  const std::string id = runtime_.running().front();
  open();
  runner_->set_desired({pod("web", kPlain)});
  runtime_.end(id, 4);
  ASSERT_TRUE(until_status("containerStatuses/0/restartCount", Json(1)));
  EXPECT_EQ(host_.status("web").at("containerStatuses/0/lastState/terminated/exitCode"), Json(4));
}

TEST_F(ContainerdPods, UnobservedExitKeepsItsCode) {
  runner_->set_desired({pod("web", "{restartPolicy: Never, containers: [{name: c, image: web}]}")});
  ASSERT_TRUE(until_ready());
  stop();
  runtime_.end(runtime_.running().front(), 5);
  open();
  ASSERT_TRUE(until_status("phase", Json("Failed")));
  EXPECT_EQ(host_.status("web").at("containerStatuses/0/state/terminated/exitCode"), Json(5));
  // A completed pod needs no sandbox.
  ASSERT_TRUE(until([&] { return runtime_.sandboxes().empty(); }));
}

// A runner was killed between a start and its record, or the answer was lost: the container it
// finds has exited already.
TEST_F(ContainerdPods, JobRunsOnceDespiteIncompleteStartRecord) {
  const Json job = pod("web", "{restartPolicy: Never, containers: [{name: c, image: web}]}");
  for (const auto& [state, attempt] : {std::pair("starting", 0), std::pair("waiting", -1)}) {
    SCOPED_TRACE(state);
    runner_->set_desired({job});
    ASSERT_TRUE(until_ready());
    stop();
    const std::filesystem::path file = directory() / "record.json";
    Json record = codec::parse_json(os::read_file(os::real_file_system(), file).value()).value();
    Json c = std::as_const(record)["main"].as_array()[0];
    c.set("state", state);
    c.set("attempt", attempt);
    c.erase("id");
    record.set("main", Json::array({c}));
    std::ofstream(file) << codec::write_json(record);
    const std::string id = runtime_.running().front();
    runtime_.end(id, 0);
    const auto before = runtime_.changes();
    open();
    runner_->set_desired({job});
    ASSERT_TRUE(until_status("phase", Json("Succeeded")));
    const auto changes = runtime_.changes();
    EXPECT_EQ(std::count(changes.begin(), changes.end(), "StartContainer"),
              std::count(before.begin(), before.end(), "StartContainer"));
    runner_->set_desired({});
    ASSERT_TRUE(until([&] { return host_.has_finished("web") && runner_->idle(); }));
  }
}

TEST_F(ContainerdPods, PodWithoutRecordIsRemovedAtStart) {
  runner_->set_desired({pod("web", kPlain)});
  ASSERT_TRUE(until_ready());
  stop();
  std::filesystem::remove_all(directory());
  open();
  ASSERT_TRUE(until([&] { return runtime_.sandboxes().empty() && runtime_.containers().empty(); }));
}

TEST_F(ContainerdPods, RunnerDoesNotOpenWhileContainerdIsDown) {
  runner_->set_desired({pod("web", kPlain)});
  ASSERT_TRUE(until_ready());
  stop();
  runtime_.set_down(true);
  life();
  const auto opened = PodRunner::open(
      {.root = root_, .node_name = "edge0", .node_address = "127.0.0.9"}, *driver_, host_);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code(), Code::kUnavailable);
  runtime_.set_down(false);
  open();
  ASSERT_TRUE(until_ready());
  EXPECT_THAT(runtime_.running(), SizeIs(1));
}

TEST_F(ContainerdPods, MissingImageIsReportedAndPodStartsAfterImport) {
  runtime_.set_images({});
  runner_->set_desired({pod("web", kPlain)});
  ASSERT_TRUE(until_status("containerStatuses/0/state/waiting/reason", Json("ErrImageNeverPull")));
  EXPECT_THAT(host_.status("web").at("containerStatuses/0/state/waiting/message").as_string(),
              HasSubstr("images import"));
  EXPECT_THAT(runtime_.sandboxes(), IsEmpty());
  runtime_.set_images({"docker.io/library/web:latest"});
  ASSERT_TRUE(until_ready());
}

TEST_F(ContainerdPods, LogsAndTerminationMessageOmitCriPrefixes) {
  runner_->set_desired({pod("web",
                            "{restartPolicy: Never, containers: [{name: c, image: web, "
                            "terminationMessagePolicy: FallbackToLogsOnError}]}")});
  ASSERT_TRUE(until_ready());
  std::ofstream(directory() / "c.log") << "2026-01-31T12:00:00.123456789Z stdout F hello\n"
                                          "2026-01-31T12:00:00.2Z stderr P long \n"
                                          "2026-01-31T12:00:00.3Z stderr F line\n";
  auto stream = open_log(directory(), "c", {});
  ASSERT_TRUE(stream.ok()) << stream.error();
  std::string text;
  while (const auto piece = (*stream)->read()) text += *piece;
  EXPECT_EQ(text, "hello\nlong line\n");
  runtime_.end(runtime_.running().front(), 1);
  ASSERT_TRUE(until_status("phase", Json("Failed")));
  EXPECT_EQ(host_.status("web").at("containerStatuses/0/state/terminated/message"),
            Json("hello\nlong line\n"));
}

TEST_F(ContainerdPods, TerminationMessageIsInTheStatus) {
  runner_->set_desired({pod("web",
                            "{restartPolicy: Never, containers: [{name: c, image: web, "
                            "terminationMessagePath: /said}]}")});
  ASSERT_TRUE(until_ready());
  const std::string id = runtime_.running().front();
  const std::string file = runtime_.containers().at(id).mounts.at("/said");
  std::ofstream(file) << "no model\n";
  runtime_.end(id, 0);
  ASSERT_TRUE(until_status("phase", Json("Succeeded")));
  EXPECT_EQ(host_.status("web").at("containerStatuses/0/state/terminated/message"),
            Json("no model\n"));
}

// Every call fails once in a pod's life, also if the runner is killed right after; the result is
// the same.
TEST_F(ContainerdPods, FailedRuntimeCallBlocksNeitherStartNorRemoval) {
  for (const char* method : {"RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer",
                             "StopPodSandbox", "RemovePodSandbox"}) {
    for (const Fault fault : {Fault::kNotDone, Fault::kAnswerLost}) {
      SCOPED_TRACE(std::string(method) + (fault == Fault::kNotDone ? " not done" : " answer lost"));
      const std::string name =
          std::string(method) + (fault == Fault::kNotDone ? "-not-done" : "-lost");
      Json wanted =
          pod(name, "{terminationGracePeriodSeconds: 1, containers: [{name: c, image: web}]}");
      runtime_.fail_next(method, fault);
      runner_->set_desired({wanted});
      (void)runner_->step();
      open();
      runner_->set_desired({wanted});
      ASSERT_TRUE(until_ready(name));
      EXPECT_THAT(runtime_.running(), SizeIs(1));
      EXPECT_THAT(runtime_.sandboxes(), SizeIs(1));
      runner_->set_desired({});
      ASSERT_TRUE(until([&] { return host_.has_finished(name); }));
      EXPECT_THAT(runtime_.containers(), IsEmpty());
      EXPECT_THAT(runtime_.sandboxes(), IsEmpty());
    }
  }
}

}  // namespace containerd_pods_test
}  // namespace varda::node
