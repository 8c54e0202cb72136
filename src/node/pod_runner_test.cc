// The state machine of pods, with a scripted driver, prober and clock.
#include "node/pod_runner.h"

#include <fcntl.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/yaml.h"
#include "node/internal/environment.h"
#include "node/testing/fakes.h"

namespace varda::node {
namespace pod_runner_test {

using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Pods : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "pod_runner_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    open();
  }
  void TearDown() override {
    runner_.reset();
    std::filesystem::remove_all(root_);
  }
  void open() {
    runner_.reset();
    auto opened =
        PodRunner::open({.root = root_, .node_name = "edge0", .node_address = "127.0.0.9"}, driver_,
                        host_, os::real_file_system(), clock_, system_rng(), &prober_);
    ASSERT_TRUE(opened.ok()) << opened.error();
    runner_ = std::move(opened).value();
  }
  static Json pod(const std::string& name, const std::string& spec) {
    Json object = Json::object(
        {{"metadata",
          Json::object({{"name", name}, {"namespace", "default"}, {"uid", "uid-" + name}})}});
    object.set("spec", codec::parse_yaml(spec).value());
    object["spec"].set("nodeName", "edge0");
    return object;
  }
  void desire(std::vector<Json> pods) {
    runner_->set_desired(std::move(pods));
    settle();
  }
  // Steps until nothing is due now.
  void settle() {
    for (int i = 0; i < 4; ++i) next_ = runner_->step();
  }
  void pass(Duration time) {
    clock_.advance(time);
    settle();
  }
  Json status(const std::string& name = "web") const { return host_.status(name); }
  std::string phase(const std::string& name = "web") const {
    return status(name)["phase"].as_string();
  }
  Json container(std::size_t i = 0) const { return status()["containerStatuses"].as_array().at(i); }
  std::string condition(const std::string& type) const {
    const Json now = status();
    for (const Json& c : now["conditions"].as_array()) {
      if (c["type"].as_string() == type)
        return c["status"].as_string() +
               (c["reason"].is_string() ? " " + c["reason"].as_string() : "");
    }
    return "none";
  }

  std::filesystem::path root_;
  testing::ManualClock clock_;
  testing::FakeDriver driver_;
  testing::FakeProber prober_;
  testing::RecordingHost host_;
  std::unique_ptr<PodRunner> runner_;
  std::optional<SteadyTime> next_;
};

constexpr const char* kPlain = "containers: [{name: c, image: app, args: ['--at', '$(POD_IP)']}]";

TEST_F(Pods, RunningPodIsReadyWithUniqueAddress) {
  desire({pod("web", kPlain), pod("other", kPlain)});
  EXPECT_EQ(phase(), "Running");
  EXPECT_EQ(condition("Ready"), "True");
  EXPECT_EQ(condition("PodScheduled"), "True");
  EXPECT_EQ(condition("Initialized"), "True");
  EXPECT_EQ(container()["ready"], Json(true));
  EXPECT_EQ(container()["started"], Json(true));
  EXPECT_EQ(container()["restartCount"], Json(0));
  EXPECT_EQ(container()["containerID"], Json("fake://c-0"));
  EXPECT_EQ(status()["hostIP"], Json("127.0.0.9"));
  const std::string ip = status()["podIP"].as_string();
  EXPECT_THAT(ip, ::testing::MatchesRegex("127\\.[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_NE(ip, status("other")["podIP"].as_string());
  EXPECT_EQ(driver_.containers.begin()->second.config.arguments.at(0), "--at");
}

TEST_F(Pods, UnchangedPodCausesNoWrites) {
  desire({pod("web", kPlain)});
  Json again = pod("web", kPlain);
  again.set("status", status());
  desire({again});
  const int changes = host_.changes();
  const auto written =
      std::filesystem::last_write_time(root_ / "pods" / "default_web_uid-web" / "record.json");
  again["metadata"].set("resourceVersion", "17");
  desire({again});
  pass(std::chrono::hours(1));
  EXPECT_EQ(host_.changes(), changes);
  EXPECT_EQ(
      std::filesystem::last_write_time(root_ / "pods" / "default_web_uid-web" / "record.json"),
      written);
  EXPECT_EQ(driver_.starts.size(), 1u);
}

TEST_F(Pods, UnfinishedRecordWriteIsRemovedOnOpen) {
  desire({pod("web", "{containers: [{name: main, image: web}]}")});
  std::vector<std::filesystem::path> leftovers;
  for (const auto& directory : std::filesystem::directory_iterator(root_ / "pods")) {
    leftovers.push_back(directory.path() / "record.json.tmp4711-3");
    std::ofstream(leftovers.back()) << "{";
  }
  ASSERT_EQ(leftovers.size(), 1u);
  open();
  EXPECT_FALSE(std::filesystem::exists(leftovers[0]));
  settle();
  EXPECT_EQ(phase(), "Running");
}

TEST_F(Pods, HostNetworkPodHasTheNodesAddress) {
  desire({pod("web",
              "{hostNetwork: true, containers: [{name: c, image: app, args: ['$(POD_IP):80']}]}")});
  EXPECT_EQ(status()["podIP"], Json("127.0.0.9"));
  EXPECT_THAT(driver_.containers.at("c-0").config.arguments, ElementsAre("127.0.0.9:80"));
}

TEST_F(Pods, InitContainersRunInOrderAndOnce) {
  desire({pod("web",
              "{initContainers: [{name: a, image: app}, {name: b, image: app}], containers: "
              "[{name: c, image: app}]}")});
  EXPECT_THAT(driver_.starts, ElementsAre("a-0"));
  EXPECT_EQ(phase(), "Pending");
  EXPECT_EQ(condition("Initialized"), "False ContainersNotInitialized");
  EXPECT_EQ(container().at("state/waiting/reason"), Json("PodInitializing"));
  driver_.end("a-0", 0);
  settle();
  EXPECT_THAT(driver_.starts, ElementsAre("a-0", "b-0"));
  driver_.end("b-0", 0);
  settle();
  EXPECT_THAT(driver_.starts, ElementsAre("a-0", "b-0", "c-0"));
  EXPECT_EQ(phase(), "Running");
  EXPECT_EQ(condition("Initialized"), "True");
  open();
  settle();
  driver_.end("c-0", 1);
  settle();
  EXPECT_THAT(driver_.starts, ElementsAre("a-0", "b-0", "c-0", "c-1"));
}

TEST_F(Pods, FailedInitContainerIsRetriedOrFailsThePod) {
  desire(
      {pod("web", "{initContainers: [{name: a, image: app}], containers: [{name: c, image: app}]}"),
       pod("job",
           "{restartPolicy: Never, initContainers: [{name: x, image: app}], containers: [{name: z, "
           "image: app}]}")});
  driver_.end("a-0", 1);
  driver_.end("x-0", 1);
  settle();
  EXPECT_THAT(driver_.starts, ElementsAre("x-0", "a-0", "a-1"));
  EXPECT_EQ(phase("job"), "Failed");
  EXPECT_EQ(phase("web"), "Pending");
}

TEST_F(Pods, FailureMessageIsLogTailIfPolicyAllows) {
  const auto fails = [&](const std::string& name, const std::string& policy, const std::string& log,
                         int code) {
    desire({pod(name, "{restartPolicy: Never, containers: [{name: " + name + ", image: app" +
                          policy + "}]}")});
    std::ofstream(driver_.containers.at(name + "-0").config.log) << log;
    driver_.end(name + "-0", code);
    settle();
    return status(name)["containerStatuses"]
        .as_array()
        .at(0)
        .at("state/terminated/message")
        .as_string();
  };
  const std::string falls_back = ", terminationMessagePolicy: FallbackToLogsOnError";
  EXPECT_EQ(fails("a", falls_back, "one\nerror: DigestMismatch\n", 1),
            "one\nerror: DigestMismatch\n");
  EXPECT_EQ(fails("b", falls_back, "all is well\n", 0), "");
  EXPECT_EQ(fails("c", "", "nobody asked\n", 1), "");
  EXPECT_EQ(fails("d", falls_back, std::string(3000, 'x') + "\nlast\n", 1), "last\n")
      << "whole lines where they fit";
  EXPECT_EQ(fails("e", falls_back, std::string(3000, 'x'), 1), std::string(2048, 'x'));
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "l\n";
  EXPECT_EQ(fails("f", falls_back, lines, 1), lines.substr(0, 160)) << "80 lines";
  EXPECT_EQ(fails("g", falls_back, "gr\xC3\xBC\xC3\xB1 \xFF\xC3", 1), "gr\xC3\xBC\xC3\xB1 ??")
      << "what JSON cannot hold";
  EXPECT_EQ(fails("h", falls_back, "", 1), "");
}

TEST_F(Pods, CrashesBackOffFromTenSecondsToFiveMinutes) {
  desire({pod("web", kPlain)});
  std::vector<int> waits;
  for (int crash = 0; crash < 9; ++crash) {
    driver_.end("c-" + std::to_string(crash), 3);
    settle();
    int waited = 0;
    while (driver_.starts.size() == static_cast<std::size_t>(crash) + 1) {
      EXPECT_EQ(container().at("state/waiting/reason"), Json("CrashLoopBackOff"));
      EXPECT_EQ(container().at("lastState/terminated/exitCode"), Json(3));
      EXPECT_EQ(phase(), "Running");
      EXPECT_EQ(condition("Ready"), "False ContainersNotReady");
      clock_.advance(seconds(5));
      (void)runner_->step();
      waited += 5;
    }
    waits.push_back(waited);
  }
  EXPECT_THAT(waits, ElementsAre(0, 10, 20, 40, 80, 160, 300, 300, 300));
  EXPECT_EQ(container()["restartCount"], Json(9));
  pass(std::chrono::minutes(11));
  driver_.end("c-9", 3);  // it ran long enough to reset the backoff
  settle();
  EXPECT_EQ(driver_.starts.back(), "c-10");
}

TEST_F(Pods, RestartPolicyDecidesHowAPodEnds) {
  desire({pod("never", "{restartPolicy: Never, containers: [{name: never, image: app}]}"),
          pod("failing", "{restartPolicy: Never, containers: [{name: f, image: app}]}"),
          pod("onfailure", "{restartPolicy: OnFailure, containers: [{name: o, image: app}]}")});
  driver_.end("never-0", 0);
  driver_.end("f-0", 2);
  driver_.end("o-0", 2);
  settle();
  EXPECT_EQ(phase("never"), "Succeeded");
  EXPECT_EQ(phase("failing"), "Failed");
  EXPECT_EQ(phase("onfailure"), "Running");
  driver_.end("o-1", 0);
  settle();
  EXPECT_EQ(phase("onfailure"), "Succeeded");
  EXPECT_EQ(status("failing").at("containerStatuses/0/state/terminated/exitCode"), Json(2));
  EXPECT_EQ(status("never").at("containerStatuses/0/state/terminated/reason"), Json("Completed"));
  pass(std::chrono::hours(1));
  EXPECT_EQ(driver_.starts.size(), 4u);
}

TEST_F(Pods, UnsupportedImageAndMissingConfigWaitWithTheirReason) {
  desire({pod("web",
              "{containers: [{name: c, image: unknown}, {name: d, image: app, envFrom: "
              "[{configMapRef: {name: settings}}]}]}")});
  EXPECT_EQ(phase(), "Pending");
  EXPECT_EQ(container(0).at("state/waiting/reason"), Json("ImageUnsupported"));
  EXPECT_EQ(container(1).at("state/waiting/reason"), Json("CreateContainerConfigError"));
  EXPECT_EQ(container(1).at("state/waiting/message"), Json("configmap \"settings\" not found"));
  host_.set_object("configmap default/settings",
                   codec::parse_json(R"({"data":{"MODE":"fast"}})").value());
  pass(seconds(5));
  EXPECT_EQ(driver_.containers.at("d-0").config.environment.at("MODE"), "fast");
}

TEST_F(Pods, UnsupportedMountIsReported) {
  driver_.fail_start = Error(Code::kUnsupported, "no namespaces here");
  desire({pod("web",
              "{volumes: [{name: v, emptyDir: {}}], containers: [{name: c, image: app, "
              "volumeMounts: [{name: v, mountPath: /data}]}]}")});
  EXPECT_EQ(container().at("state/waiting/reason"), Json("MountUnsupported"));
  EXPECT_EQ(container()["restartCount"], Json(0));
  driver_.fail_start.reset();
  pass(seconds(10));
  EXPECT_EQ(phase(), "Running");
  EXPECT_EQ(container()["restartCount"], Json(0));
}

TEST_F(Pods, ReadinessFollowsItsProbe) {
  desire(
      {pod("web", R"({containers: [{name: c, image: app, ports: [{name: http, containerPort: 8080}],
                         readinessProbe: {httpGet: {path: /ready, port: http}, periodSeconds: 2, failureThreshold: 2}}]})")});
  EXPECT_EQ(prober_.probes.at(0).port, 8080);
  EXPECT_EQ(prober_.probes.at(0).host, status()["podIP"].as_string());
  EXPECT_EQ(condition("Ready"), "False ContainersNotReady");
  prober_.healthy.insert("/ready");
  pass(seconds(2));
  EXPECT_EQ(condition("Ready"), "True");
  prober_.healthy.clear();
  pass(seconds(2));
  EXPECT_EQ(condition("Ready"), "True");
  pass(seconds(2));
  EXPECT_EQ(condition("Ready"), "False ContainersNotReady");
  EXPECT_EQ(driver_.starts.size(), 1u);
}

TEST_F(Pods, FailedLivenessRestartsTheContainer) {
  prober_.healthy.insert("/live");
  desire({pod("web",
              "{containers: [{name: c, image: app, livenessProbe: {httpGet: {path: /live, port: "
              "80}, periodSeconds: 1, "
              "failureThreshold: 3}}]}")});
  pass(seconds(5));
  EXPECT_EQ(driver_.starts.size(), 1u);
  prober_.healthy.clear();
  pass(seconds(1));
  pass(seconds(1));
  EXPECT_EQ(driver_.starts.size(), 1u);
  pass(seconds(1));
  EXPECT_THAT(driver_.containers.at("c-0").signals, ElementsAre(StopSignal::kTerminate));
  EXPECT_THAT(driver_.starts, ElementsAre("c-0", "c-1"));
  EXPECT_EQ(container()["restartCount"], Json(1));
}

TEST_F(Pods, StartupProbeDelaysOtherProbes) {
  desire({pod(
      "web",
      R"({containers: [{name: c, image: app, startupProbe: {httpGet: {path: /up, port: 80}, periodSeconds: 1, failureThreshold: 9},
                         livenessProbe: {httpGet: {path: /live, port: 80}, periodSeconds: 1, failureThreshold: 1}}]})")});
  pass(seconds(1));
  for (const Probe& probe : prober_.probes) EXPECT_EQ(probe.path, "/up");
  EXPECT_EQ(container()["started"], Json(false));
  EXPECT_EQ(container()["ready"], Json(false));
  prober_.healthy = {"/up", "/live"};
  pass(seconds(1));
  EXPECT_EQ(container()["started"], Json(true));
  EXPECT_EQ(container()["ready"], Json(true));
  EXPECT_EQ(prober_.probes.back().path, "/live");
}

TEST_F(Pods, DeletedPodIsKilledAfterItsGracePeriod) {
  driver_.obeys_terminate = false;
  desire({pod("web", kPlain)});
  Json deleted = pod("web", kPlain);
  deleted["metadata"].set("deletionTimestamp", "2026-01-01T00:00:00Z");
  deleted["metadata"].set("deletionGracePeriodSeconds", 7);
  desire({deleted});
  EXPECT_THAT(driver_.containers.at("c-0").signals, ElementsAre(StopSignal::kTerminate));
  pass(seconds(6));
  EXPECT_FALSE(host_.has_finished("web"));
  EXPECT_EQ(condition("Ready"), "True");
  pass(seconds(1));
  EXPECT_THAT(driver_.containers.at("c-0").signals,
              ElementsAre(StopSignal::kTerminate, StopSignal::kKill));
  EXPECT_TRUE(host_.has_finished("web"));
  EXPECT_EQ(container().at("state/terminated/exitCode"), Json(137));
  EXPECT_TRUE(runner_->idle());
  EXPECT_TRUE(std::filesystem::is_empty(root_ / "pods"));
}

TEST_F(Pods, SecondDeletionShortensTheGracePeriod) {
  driver_.obeys_terminate = false;
  desire({pod("web", kPlain)});
  Json deleted = pod("web", kPlain);
  deleted["metadata"].set("deletionTimestamp", "2026-01-01T00:00:00Z");
  deleted["metadata"].set("deletionGracePeriodSeconds", 300);
  desire({deleted});
  pass(seconds(1));
  deleted["metadata"].set("deletionGracePeriodSeconds", 0);
  desire({deleted});
  EXPECT_TRUE(host_.has_finished("web"));
}

TEST_F(Pods, UndesiredPodEnds) {
  desire({pod("web", kPlain), pod("other", kPlain)});
  desire({pod("other", kPlain)});
  EXPECT_TRUE(host_.has_finished("web"));
  EXPECT_FALSE(host_.has_finished("other"));
  EXPECT_EQ(driver_.running(), 1u);
}

TEST_F(Pods, PodWaitsForHostPortOfEndingPod) {
  // In either order of the two pods.
  for (const auto& [old_name, new_name] : {std::pair("a", "b"), std::pair("d", "c")}) {
    driver_.obeys_terminate = false;
    const auto spec = [](const std::string& container, int port) {
      return "{hostNetwork: true, terminationGracePeriodSeconds: 5, containers: [{name: " +
             container + ", image: app, ports: [{containerPort: " + std::to_string(port) + "}]}]}";
    };
    const Json old = pod(old_name, spec("c", 80)), next = pod(new_name, spec("d", 80)),
               other = pod("other", spec("e", 81));
    desire({old});
    const std::size_t before = driver_.starts.size();
    desire({next, other});
    EXPECT_EQ(driver_.starts.size(), before + 1);
    EXPECT_EQ(phase(new_name), "Pending");
    EXPECT_EQ(
        status(new_name).at("containerStatuses/0/state/waiting/message"),
        Json("pod default/" + std::string(old_name) + " is ending and still has port 80/TCP"));
    EXPECT_EQ(phase("other"), "Running");
    clock_.advance(seconds(5));
    runner_->step();  // one round, without waiting
    EXPECT_TRUE(host_.has_finished(old_name));
    EXPECT_EQ(phase(new_name), "Running");
    EXPECT_FALSE(status(new_name).at("containerStatuses/0/state").contains("waiting"));
    driver_.obeys_terminate = true;
    desire({});
    EXPECT_TRUE(runner_->idle());
    driver_.containers.clear();
  }
}

TEST_F(Pods, RestartedRunnerAdoptsRunningAndRestartsEndedContainers) {
  desire({pod("web", kPlain), pod("other", "{containers: [{name: d, image: app}]}")});
  const std::string ip = status()["podIP"].as_string();
  driver_.containers.erase("d-0");  // ended unobserved
  open();
  settle();
  EXPECT_THAT(driver_.starts, ElementsAre("d-0", "c-0", "d-1"));
  EXPECT_EQ(status()["podIP"], Json(ip));
  EXPECT_EQ(container()["restartCount"], Json(0));
  EXPECT_EQ(status("other").at("containerStatuses/0/lastState/terminated/reason"),
            Json("ContainerStatusUnknown"));
  EXPECT_EQ(runner_->desired().size(), 2u);
}

TEST_F(Pods, UnrecordedStartIsFoundOrRepeated) {
  desire({pod("web", kPlain)});
  // The state of a runner that was killed between a start and its record.
  const auto file = root_ / "pods" / "default_web_uid-web" / "record.json";
  Json record = codec::parse_json(os::read_file(os::real_file_system(), file).value()).value();
  record["main"].array_items().at(0).set("state", "starting");
  record["main"].array_items().at(0).set("id", "");
  ASSERT_TRUE(
      os::write_file_atomically(os::real_file_system(), file, codec::write_json(record)).ok());
  open();
  settle();
  EXPECT_EQ(driver_.starts.size(), 1u);
  EXPECT_EQ(container()["containerID"], Json("fake://c-0"));
  runner_.reset();
  ASSERT_TRUE(
      os::write_file_atomically(os::real_file_system(), file, codec::write_json(record)).ok());
  driver_.containers.clear();
  open();
  settle();
  EXPECT_THAT(driver_.starts, ElementsAre("c-0", "c-0"));
  EXPECT_EQ(container()["restartCount"], Json(0));
}

TEST_F(Pods, RebootEndsAllRecordedContainers) {
  desire({pod("web", kPlain)});
  const auto file = root_ / "pods" / "default_web_uid-web" / "record.json";
  Json record = codec::parse_json(os::read_file(os::real_file_system(), file).value()).value();
  record.set("boot", "another");
  ASSERT_TRUE(
      os::write_file_atomically(os::real_file_system(), file, codec::write_json(record)).ok());
  // A process with the same id exists, but belongs to another pod.
  driver_.containers.at("c-0").config.name.pod_uid = "somebody else";
  open();
  settle();
  EXPECT_THAT(driver_.starts, ElementsAre("c-0", "c-1"));
  EXPECT_EQ(container().at("lastState/terminated/reason"), Json("ContainerStatusUnknown"));
}

TEST_F(Pods, ContainersWithoutPodAreEnded) {
  desire({pod("web", kPlain)});
  runner_.reset();
  std::filesystem::remove_all(root_ / "pods");
  open();
  EXPECT_EQ(driver_.running(), 0u);
}

TEST_F(Pods, OfflineStartUsesConfigurationFromDisk) {
  host_.set_object("secret default/s", codec::parse_json(R"({"data":{"key":"dmFsdWU="}})").value());
  desire({pod("web",
              "{containers: [{name: c, image: app, env: [{name: K, valueFrom: {secretKeyRef: "
              "{name: s, key: key}}}]}]}")});
  EXPECT_EQ(driver_.containers.at("c-0").config.environment.at("K"), "value");
  EXPECT_EQ(
      std::filesystem::status(root_ / "pods" / "default_web_uid-web" / "config.json").permissions(),
      std::filesystem::perms(0600));
  host_.set_offline(true);
  driver_.containers.clear();
  open();
  settle();
  EXPECT_EQ(driver_.containers.at("c-1").config.environment.at("K"), "value");
}

TEST_F(Pods, VolumesAreCreatedAndMounted) {
  std::filesystem::create_directories(root_ / "host");
  host_.set_object("configmap default/cm",
                   codec::parse_json(R"({"data":{"a.txt":"A","b.txt":"B"}})").value());
  desire({pod("web", R"({volumes: [{name: e, emptyDir: {}}, {name: h, hostPath: {path: )" +
                         (root_ / "host").string() +
                         R"(, type: Directory}},
                         {name: m, configMap: {name: cm, items: [{key: a.txt, path: sub/x}]}},
                         {name: d, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}],
                         containers: [{name: c, image: app, volumeMounts: [{name: e, mountPath: /e, subPath: part}, {name: h, mountPath: /h, readOnly: true},
                         {name: m, mountPath: /m}, {name: d, mountPath: /d}]}]})")});
  ASSERT_EQ(phase(), "Running") << codec::write_json(container());
  const auto volumes = root_ / "pods" / "default_web_uid-web" / "volumes";
  const auto& mounts = driver_.containers.at("c-0").config.mounts;
  EXPECT_EQ(mounts.at(0).source, volumes / "e" / "part");
  EXPECT_TRUE(mounts.at(1).read_only);
  EXPECT_EQ(mounts.at(1).source, root_ / "host");
  EXPECT_EQ(os::read_file(os::real_file_system(), volumes / "m" / "sub" / "x").value(), "A");
  EXPECT_FALSE(std::filesystem::exists(volumes / "m" / "b.txt"));
  EXPECT_EQ(os::read_file(os::real_file_system(), volumes / "d" / "name").value(), "web");
}

TEST_F(Pods, ChangedConfigurationReachesARunningPodWithinAMinute) {
  const auto set = [&](const std::string& text) {
    host_.set_object("configmap default/cm",
                     Json::object({{"data", Json::object({{"k", text}, {"same", "s"}})}}));
  };
  set("first");
  desire({pod("web", R"({volumes: [{name: m, configMap: {name: cm}}],
                         containers: [{name: c, image: app, volumeMounts: [{name: m, mountPath: /m}]}]})")});
  const auto volume = root_ / "pods" / "default_web_uid-web" / "volumes" / "m";
  const auto text = [&] { return os::read_file(os::real_file_system(), volume / "k").value(); };
  const int mounted = ::open(volume.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const auto untouched = std::filesystem::last_write_time(volume / "same");
  set("second");
  pass(seconds(59));
  EXPECT_EQ(text(), "first");
  pass(seconds(1));
  EXPECT_EQ(text(), "second");
  EXPECT_EQ(container()["restartCount"], Json(0));
  EXPECT_EQ(std::filesystem::last_write_time(volume / "same"), untouched);
  struct stat named {
  }, held{};
  ASSERT_EQ(::stat(volume.c_str(), &named), 0);
  ASSERT_EQ(::fstat(mounted, &held), 0);
  EXPECT_EQ(named.st_ino, held.st_ino) << "the container has another directory";
  ::close(mounted);
  host_.set_offline(true);
  pass(seconds(60));
  EXPECT_EQ(text(), "second");
}

TEST_F(Pods, ASubPathThroughALinkIsRefused) {
  std::filesystem::create_directories(root_ / "host" / "secret");
  std::filesystem::create_directories(root_ / "volume" / "real");
  std::filesystem::create_directory_symlink(root_ / "host", root_ / "volume" / "link");
  std::filesystem::create_directory_symlink("real", root_ / "volume" / "inner");
  std::filesystem::create_directory_symlink(root_ / "volume",
                                            root_ / "volumes_of_the_administrator");
  for (const char* inner :
       {"link", "link/secret", "link/made", "real/../link", "inner/made", "inner"}) {
    const std::string name = "p" + std::to_string(std::hash<std::string>()(inner));
    desire({pod(name, "{volumes: [{name: v, hostPath: {path: " + (root_ / "volume").string() +
                          "}}], containers: [{name: c, image: app, volumeMounts: [{name: v, "
                          "mountPath: /v, subPath: " +
                          inner + "}]}]}")});
    const Json waiting = status(name).at("containerStatuses/0/state/waiting");
    EXPECT_THAT(waiting["message"].as_string(),
                ::testing::AnyOf(HasSubstr("the link '"), HasSubstr("leaves the volume")))
        << inner;
  }
  EXPECT_THAT(driver_.starts, IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(root_ / "host" / "made"));
  EXPECT_FALSE(std::filesystem::exists(root_ / "volume" / "real" / "made"));
  // The volume itself is the administrator's choice.
  desire({pod("web", "{volumes: [{name: v, hostPath: {path: " +
                         (root_ / "volumes_of_the_administrator").string() +
                         "}}], containers: [{name: c, image: app, volumeMounts: [{name: v, "
                         "mountPath: /v, subPath: real/made}]}]}")});
  EXPECT_EQ(phase(), "Running");
  EXPECT_TRUE(std::filesystem::is_directory(root_ / "volume" / "real" / "made"));
}

TEST_F(Pods, ConfigurationIsReadOnlyAndNeverWrittenThroughALink) {
  const auto set = [&](const std::string& text) {
    host_.set_object("configmap default/cm", Json::object({{"data", Json::object({{"k", text}})}}));
    host_.set_object("secret default/s", codec::parse_json(R"({"data":{"k":"eA=="}})").value());
  };
  set("first");
  const Json web = pod(
      "web",
      R"({volumes: [{name: m, configMap: {name: cm, items: [{key: k, path: sub/f}]}}, {name: s, secret: {secretName: s}},
      {name: d, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}},
      {name: p, projected: {sources: [{configMap: {name: cm}}]}}],
      containers: [{name: a, image: app, volumeMounts: [{name: m, mountPath: /m}, {name: s, mountPath: /s}, {name: d, mountPath: /d}, {name: p, mountPath: /p}]},
                   {name: b, image: app, volumeMounts: [{name: m, mountPath: /m}]}]})");
  desire({web});
  ASSERT_EQ(phase(), "Running");
  for (const os::Mount& mount : driver_.containers.at("a-0").config.mounts)
    EXPECT_TRUE(mount.read_only) << mount.target;

  // As a container with a writable mount could have left it. Container b has the volume mounted all
  // the time.
  const auto volume = root_ / "pods" / "default_web_uid-web" / "volumes" / "m";
  const int mounted = ::open(volume.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  std::filesystem::create_directories(root_ / "host");
  std::filesystem::remove_all(volume / "sub");
  std::filesystem::create_directory_symlink(root_ / "host", volume / "sub");
  std::ofstream(volume / "own") << "b still reads this";
  set("second");
  open();
  driver_.end("a-0", 1);
  settle();
  pass(seconds(10));
  EXPECT_EQ(container(0)["restartCount"], Json(1));
  EXPECT_TRUE(std::filesystem::is_empty(root_ / "host"));
  EXPECT_FALSE(std::filesystem::is_symlink(volume / "sub"));
  EXPECT_EQ(os::read_file(os::real_file_system(), volume / "sub" / "f").value(), "second");
  EXPECT_FALSE(std::filesystem::exists(volume / "own"));
  EXPECT_EQ(::faccessat(mounted, "own", R_OK, 0), 0)
      << "what a running container has mounted was taken away";

  // Once nothing runs, the old directories are removed.
  const auto set_aside = root_ / "pods" / "default_web_uid-web" / "volumes.old";
  EXPECT_TRUE(std::filesystem::exists(set_aside));
  open();
  driver_.containers.clear();
  open();
  settle();
  pass(std::chrono::minutes(1));
  EXPECT_FALSE(std::filesystem::exists(set_aside / "m.0" / "own"));
  ::close(mounted);
}

TEST_F(Pods, LogIsLimitedEverySecondAndAfterContainerExit) {
  constexpr std::uint64_t kLimit = 10u << 20;
  const auto log = root_ / "pods" / "default_web_uid-web" / "c.log";
  const auto write = [&] {
    std::ofstream(log, std::ios::app) << "x";
    std::filesystem::resize_file(log, 12u << 20);
  };
  desire({pod("web", "{restartPolicy: Never, containers: [{name: c, image: app}]}")});
  write();
  pass(seconds(1));
  EXPECT_EQ(std::filesystem::file_size(log), 0u);
  EXPECT_EQ(std::filesystem::file_size(log.string() + ".1"), kLimit);
  write();
  driver_.end("c-0", 0);
  settle();
  EXPECT_EQ(phase(), "Succeeded");
  ASSERT_TRUE(next_);
  pass(seconds(1));
  EXPECT_EQ(std::filesystem::file_size(log), 0u);
  EXPECT_FALSE(next_);  // nothing left to check
}

TEST_F(Pods, MissingHostPathWaitsAndIsFoundLater) {
  desire({pod("web", "{volumes: [{name: h, hostPath: {path: " + (root_ / "late").string() +
                         ", type: Directory}}], containers: [{name: c, image: app}]}")});
  EXPECT_EQ(container().at("state/waiting/reason"), Json("ContainerCreating"));
  EXPECT_THAT(container().at("state/waiting/message").as_string(), HasSubstr("does not exist"));
  EXPECT_THAT(host_.events(), Contains(HasSubstr("FailedMount")));
  std::filesystem::create_directories(root_ / "late");
  pass(seconds(5));
  EXPECT_EQ(phase(), "Running");
}

TEST_F(Pods, FinishedPodDoesNotRunAgain) {
  Json done = pod("web", kPlain);
  done.set("status", Json::object({{"phase", "Succeeded"}}));
  desire({done});
  EXPECT_THAT(driver_.starts, IsEmpty());
  done["metadata"].set("deletionTimestamp", "2026-01-01T00:00:00Z");
  desire({done});
  EXPECT_TRUE(host_.has_finished("web"));
}

TEST(Expand, OnlyKnownVariablesAreReplaced) {
  const std::map<std::string, std::string> values = {{"A", "1"}, {"B", "two"}};
  const std::pair<const char*, const char*> cases[] = {
      {"$(A)-$(B)", "1-two"}, {"$$(A)", "$(A)"},    {"$(C)", "$(C)"}, {"$A", "$A"},
      {"$(A", "$(A"},         {"cost $", "cost $"}, {"$$$(A)", "$1"}};
  for (const auto& [text, wanted] : cases)
    EXPECT_EQ(internal::expand(text, values), wanted) << text;
}

// ---- drivers with pod state besides containers

TEST_F(Pods, MissingImageIsRetriedWithoutMoreEvents) {
  desire({pod("web", "containers: [{name: c, image: missing}]")});
  EXPECT_EQ(container().at("state/waiting/reason"), Json("ErrImageNeverPull"));
  EXPECT_EQ(container().at("state/waiting/message"), Json("import it"));
  EXPECT_THAT(host_.events(), Contains(HasSubstr("ErrImageNeverPull")));
  EXPECT_THAT(driver_.prepared, IsEmpty());
  const std::size_t events = host_.events().size();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(next_);
    EXPECT_LE(*next_ - clock_.now(), seconds(5));
    pass(seconds(5));
  }
  EXPECT_EQ(host_.events().size(), events);
}

TEST_F(Pods, PodUsesAddressOfTheDriverIfPresent) {
  driver_.address = "10.1.2.3";
  desire({pod("web", kPlain)});
  EXPECT_EQ(status()["podIP"], Json("10.1.2.3"));
  EXPECT_THAT(driver_.containers.at("c-0").config.arguments, ElementsAre("--at", "10.1.2.3"));
  EXPECT_EQ(driver_.containers.at("c-0").config.pod.uid, "uid-web");
  // A restart may get another address. If the driver assigns none, the runner picks one.
  driver_.address = "10.1.2.4";
  driver_.end("c-0", 1);
  settle();
  EXPECT_THAT(driver_.containers.at("c-1").config.arguments, ElementsAre("--at", "10.1.2.4"));
  EXPECT_EQ(status()["podIP"], Json("10.1.2.4"));
  driver_.address = "";
  driver_.end("c-1", 1);
  settle();
  pass(seconds(10));
  EXPECT_THAT(status()["podIP"].as_string(), ::testing::StartsWith("127."));
}

TEST_F(Pods, SandboxFailureIsRetriedWithoutRestartCount) {
  driver_.fail_pod = Error(Code::kUnavailable, "no network yet");
  desire({pod("web", kPlain)});
  EXPECT_EQ(container().at("state/waiting/reason"), Json("ContainerCreating"));
  EXPECT_THAT(host_.events(), Contains(HasSubstr("FailedCreatePodSandBox no network yet")));
  driver_.fail_pod.reset();
  pass(seconds(5));
  EXPECT_EQ(phase(), "Running");
  EXPECT_EQ(container()["restartCount"], Json(0));
}

TEST_F(Pods, PodFinishesOnlyAfterCompleteRemoval) {
  desire({pod("web", kPlain)});
  driver_.fail_removal = Error(Code::kUnavailable, "later");
  desire({});
  EXPECT_EQ(driver_.running(), 0u);
  EXPECT_FALSE(host_.has_finished("web"));
  EXPECT_TRUE(std::filesystem::exists(root_ / "pods" / "default_web_uid-web"));
  driver_.fail_removal.reset();
  pass(seconds(5));
  EXPECT_TRUE(host_.has_finished("web"));
  EXPECT_THAT(driver_.left, IsEmpty());
}

TEST_F(Pods, CompletedPodKeepsOnlyItsDirectory) {
  desire({pod("web", "{restartPolicy: Never, containers: [{name: c, image: app}]}")});
  driver_.fail_removal = Error(Code::kUnavailable, "later");
  driver_.end("c-0", 0);
  settle();
  EXPECT_EQ(phase(), "Succeeded");
  EXPECT_FALSE(driver_.left.empty());
  driver_.fail_removal.reset();
  pass(seconds(5));
  EXPECT_THAT(driver_.left, IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(root_ / "pods" / "default_web_uid-web"));
  const std::size_t removals = driver_.removed.size();
  pass(std::chrono::hours(1));
  EXPECT_EQ(driver_.removed.size(), removals);
}

TEST_F(Pods, IsolatedContainerGetsTerminationMessageFile) {
  driver_.isolates = true;
  desire({pod("web", "{restartPolicy: Never, containers: [{name: c, image: app}]}")});
  const auto& mounts = driver_.containers.at("c-0").config.mounts;
  ASSERT_EQ(mounts.size(), 1u);
  EXPECT_EQ(mounts[0].target, "/dev/termination-log");
  EXPECT_EQ(std::filesystem::status(mounts[0].source).permissions(), std::filesystem::perms(0666));
  std::ofstream(mounts[0].source) << std::string(5000, 'x');
  driver_.end("c-0", 1);
  settle();
  EXPECT_EQ(container().at("state/terminated/message").as_string().size(), 4096u);
}

}  // namespace pod_runner_test
}  // namespace varda::node
