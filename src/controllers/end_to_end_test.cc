// The controllers over the real API server, in memory: objects in, objects out. The test plays
// agents, runners and the scheduler, and writes their reports.

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <thread>

#include "api/kind.h"
#include "apiserver/testing/in_memory.h"
#include "base/testing/eventually.h"
#include "codec/testing/golden_cases.h"
#include "codec/yaml.h"
#include "controllers/controllers.h"
#include "kube/client.h"
#include "meta/patch.h"
#include "runtime/manager.h"
#include "runtime/testing/at_rest.h"

namespace varda::controllers {
namespace end_to_end_test {

using codec::Json;

const std::string kModels = "/apis/ai.kubeedge.io/v1alpha1/namespaces/default/inferencemodels";
const std::string kEdgeNodes = "/apis/edgeai.io/v1alpha1/edgenodes";
const std::string kPods = "/api/v1/namespaces/default/pods";

Json yaml(std::string_view text) {
  auto parsed = codec::parse_yaml(text);
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().message());
  return std::move(parsed).value();
}

/// The system clock plus an offset that the test sets.
class AheadClock final : public Clock {
 public:
  WallTime wall() const override {
    return system_clock().wall() + std::chrono::duration_cast<WallTime::duration>(ahead());
  }
  SteadyTime now() const override { return system_clock().now() + ahead(); }
  void set_ahead(std::chrono::seconds by) { ahead_ = by.count(); }

 private:
  Duration ahead() const { return std::chrono::seconds(ahead_.load()); }
  std::atomic<std::int64_t> ahead_{0};
};

class Cluster : public ::testing::Test {
 protected:
  static apiserver::InMemoryApiServer::Options with_rules() {
    apiserver::InMemoryApiServer::Options options;
    for (const api::NativeRule& rule : api::native_rules())
      options.server.rules[{rule.group, rule.kind}] = rule.check;
    options.crds = api::crds();
    return options;
  }
  Cluster() : api_(with_rules()), client_(api_.transport(), {}) { start(); }

  void start() {
    manager_ = std::make_unique<runtime::Manager>(client_, runtime::Manager::Options{});
    hosting::Options options;
    options.node_port_host = "127.0.0.1";
    options.clock = &clock_;
    if (!servers_.is_null()) options.servers = hosting::servers_from_json(servers_).value();
    controllers_ = add_all(*manager_, options);
    thread_ = std::jthread(
        [this](std::stop_token stop) { EXPECT_TRUE(manager_->run(Context(stop)).ok()); });
  }
  void stop() {
    thread_ = {};
    manager_.reset();
    controllers_.reset();
  }
  ~Cluster() override { stop(); }

  void post(const std::string& collection, const Json& object) {
    const auto reply = api_.post(collection, object);
    ASSERT_EQ(reply.status, 201) << reply.text;
  }
  void patch(const std::string& path, std::string_view change) {
    const auto reply = api_.merge_patch(path, yaml(change));
    ASSERT_EQ(reply.status, 200) << reply.text;
  }
  void patch_status(const std::string& path, std::string_view status) {
    patch(path + "/status", "{status: " + std::string(status) + "}");
  }

  void add_node(const std::string& name, bool edge = true) {
    const std::string role = edge ? ", node-role.kubernetes.io/edge: ''" : "";
    post("/api/v1/nodes", yaml("{apiVersion: v1, kind: Node, metadata: {name: " + name +
                               ", labels: {kubernetes.io/hostname: " + name + role + "}}}"));
    patch_status("/api/v1/nodes/" + name,
                 "{conditions: [{type: Ready, status: 'True'}], addresses: [{type: InternalIP, "
                 "address: 127.9.1.1}]}");
  }
  void add_agent(const std::string& name) {
    post(kEdgeNodes, yaml("{apiVersion: edgeai.io/v1alpha1, kind: EdgeNode, metadata: {name: " +
                          name + "}, spec: {}}"));
    patch_status(kEdgeNodes + "/" + name,
                 "{agentVersion: 0.1.0, modelRoot: /data/models, address: 127.9.1.1}");
  }
  Json model(std::string_view change = "{}") {
    Json object = yaml(R"(
apiVersion: ai.kubeedge.io/v1alpha1
kind: InferenceModel
metadata: {name: digits}
spec:
  modelName: digits
  deployToLayer: edge
  frameworkType: onnx
  nodeName: edge0
  manifest:
  - {version: "3", downloadURL: "http://f/3.tar.gz", sha256sum: "3333333333333333333333333333333333333333333333333333333333333333"}
  - {version: "4", downloadURL: "http://f/4.tar.gz", sha256sum: "4444444444444444444444444444444444444444444444444444444444444444"}
  targetVersion: "3"
)");
    const Json members = yaml(change);
    for (const auto& [name, value] : members.as_object()) object["spec"].set(name, value);
    return object;
  }

  Json status(const std::string& name = "digits") {
    return api_.get(kModels + "/" + name).body["status"];
  }
  std::string condition(std::string_view type, std::string_view member,
                        const std::string& name = "digits") {
    const Json now = status(name);
    for (const Json& one : now["conditions"].as_array()) {
      if (one["type"].as_string() == type) return one[member].as_string();
    }
    return "";
  }
  bool ready_is(const std::string& status, const std::string& reason,
                const std::string& name = "digits") {
    return condition("Ready", "status", name) == status &&
           condition("Ready", "reason", name) == reason;
  }
  Json work(const std::string& node = "edge0") {
    return api_.get(kEdgeNodes + "/" + node).body.at("spec/models");
  }
  // The node's only item, or null.
  Json first_work() {
    const Json items = work();
    return items.empty() ? Json() : items.as_array().front();
  }
  bool has_warning(std::string_view reason) {
    const auto events = api_.get("/api/v1/namespaces/default/events");
    for (const Json& event : events.body["items"].as_array()) {
      if (event["reason"].as_string() == reason && event["type"].as_string() == "Warning")
        return true;
    }
    return false;
  }
  // The first port of the Service, or null.
  Json service_port() {
    const auto service = api_.get("/api/v1/namespaces/default/services/digits");
    const Json::Array& ports = service.body["spec"]["ports"].as_array();
    return ports.empty() ? Json() : ports.front();
  }
  bool has_pod(const std::string& name = "digits") {
    return api_.get(kPods + "/" + name).status == 200;
  }

  // Plays the scheduler and the runner.
  void run_pod(const std::string& name, const std::string& node, const std::string& ip) {
    const auto bound = api_.post(kPods + "/" + name + "/binding",
                                 yaml("{apiVersion: v1, kind: Binding, metadata: {name: " + name +
                                      "}, target: {kind: Node, name: " + node + "}}"));
    ASSERT_EQ(bound.status, 201) << bound.text;
    patch_status(kPods + "/" + name, "{phase: Running, hostIP: " + ip + ", podIP: " + ip +
                                         ", conditions: [{type: Ready, status: 'True'}]}");
  }
  void end_pod(const std::string& name) {
    api_.remove(kPods + "/" + name + "?gracePeriodSeconds=0");
  }
  // Writes the agent's report about default/digits.
  void report(std::string_view item, const std::string& node = "edge0") {
    patch_status(kEdgeNodes + "/" + node, "{models: [" + std::string(item) + "]}");
  }

  void serve_version_three() {
    ASSERT_TRUE(eventually([&] { return work().size() == 1; }));
    report("{key: default/digits, exposed: '3', versions: [{version: '3', state: Ready}]}");
    ASSERT_TRUE(eventually([&] { return has_pod(); }));
    run_pod("digits", "edge0", "127.9.1.1");
    ASSERT_TRUE(eventually(
        [&] { return first_work().at("serving/url").as_string() == "http://127.9.1.1:8080"; }));
    EXPECT_TRUE(status()["url"].is_null());
    report(
        "{key: default/digits, exposed: '3', versions: [{version: '3', state: Ready}], serving: "
        "{version: '3', state: Ready}}");
    ASSERT_TRUE(eventually([&] { return ready_is("True", "Serving"); }))
        << codec::write_json(status());
    EXPECT_EQ(status()["url"].as_string(), "http://127.9.1.1:8080");
    EXPECT_EQ(status()["servingVersion"].as_string(), "3");
  }

  /// True if a restarted operator without earlier state writes nothing. Stop the operator before
  /// only when it is idle: a restart finishes pending work.
  ::testing::AssertionResult restart_writes_nothing() {
    api_.settle();  // the API server makes ServiceAccounts by itself
    const std::string before = revision();
    start();
    if (!becomes_idle()) return ::testing::AssertionFailure() << "the operator stays busy";
    stop();
    if (revision() == before) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << "writes from revision " << before << " to " << revision();
  }
  bool becomes_idle() {
    return runtime::testing::becomes_idle(*manager_, client_, [this] { return revision(); });
  }

  std::string revision() {
    return api_.get("/api/v1/namespaces").body.at("metadata/resourceVersion").as_string();
  }

  apiserver::InMemoryApiServer api_;
  kube::Client client_;
  AheadClock clock_;
  Json servers_;  // for operators started from now on; null: the built-in table
  std::unique_ptr<runtime::Manager> manager_;
  std::unique_ptr<Controllers> controllers_;
  std::jthread thread_;
};

// The cases of src/api, through the server: schema and rules validate together.
TEST_F(Cluster, InvalidModelIsRefusedWithFieldCauses) {
  codec::testing::GoldenCases cases(std::filesystem::path(VARDA_TESTDATA) /
                                    "../../api/testdata/inference_model");
  std::size_t refused = 0;
  for (const std::string& name : cases.names()) {
    const auto& test = cases.at(name);
    const auto reply = api_.post(kModels, test.given["model"]);
    const Json& causes = test.expect["causes"];
    EXPECT_EQ(reply.status, causes.empty() ? 201 : 422) << name << reply.text;
    for (const Json& cause : causes.as_array()) {
      bool found = false;
      for (const Json& reported : reply.body.at("details/causes").as_array()) {
        found =
            found || (reported["field"] == cause["field"] && reported["reason"] == cause["reason"]);
      }
      EXPECT_TRUE(found) << name << ": " << cause["field"].as_string() << " in " << reply.text;
    }
    if (!causes.empty()) ++refused;
  }
  EXPECT_GT(refused, 30u);
}

TEST_F(Cluster, EdgeModelServesWhenNodeExistsFirst) {
  add_node("edge0");
  add_agent("edge0");
  post(kModels, model());
  serve_version_three();
}

TEST_F(Cluster, EdgeModelServesWhenNodeIsAddedLater) {
  post(kModels, model());
  ASSERT_TRUE(eventually([&] { return ready_is("False", "NodeNotFound"); }));
  add_node("edge0");
  ASSERT_TRUE(eventually([&] { return ready_is("False", "AgentMissing"); }));
  add_agent("edge0");
  serve_version_three();
}

// Otherwise the agent could not distinguish a new object from one that the operator has emptied.
TEST_F(Cluster, IdleNodeGetsEmptyWorkListAlsoAfterRecreation) {
  for (int i = 0; i < 2; ++i) {
    add_agent("edge0");
    ASSERT_TRUE(eventually([&] { return work().is_array(); }));
    EXPECT_TRUE(work().empty());
    EXPECT_EQ(api_.get(kEdgeNodes + "/edge0").body.at("metadata/generation").as_integer(), 2);
    api_.remove(kEdgeNodes + "/edge0");
  }
}

TEST_F(Cluster, UnrelatedChangesCauseNoWrites) {
  add_node("edge0");
  add_agent("edge0");
  post(kModels, model());
  serve_version_three();
  ASSERT_TRUE(becomes_idle());
  // One foreign write to each object: every controller reconciles, and no controller writes.
  const std::vector<std::string> paths{"/api/v1/nodes/edge0", kModels + "/digits",
                                       kEdgeNodes + "/edge0", kPods + "/digits"};
  const auto versions = [&] {
    std::vector<std::string> out;
    for (const std::string& path : paths)
      out.push_back(api_.get(path).body.at("metadata/resourceVersion").as_string());
    return out;
  };
  const Json touch = yaml("{metadata: {annotations: {touched: 'yes'}}}");
  std::vector<std::string> touched;
  for (const std::string& path : paths)
    touched.push_back(
        api_.merge_patch(path, touch).body.at("metadata/resourceVersion").as_string());
  ASSERT_TRUE(becomes_idle());
  stop();  // joins the workers, so that all pending writes are done
  EXPECT_EQ(versions(), touched);
}

TEST_F(Cluster, RestartedOperatorWritesNothing) {
  add_node("edge0");
  add_agent("edge0");
  post(kModels, model());
  serve_version_three();
  ASSERT_TRUE(becomes_idle());
  stop();
  EXPECT_TRUE(restart_writes_nothing());
}

TEST_F(Cluster, TargetChangeKeepsPodAndFailedTargetKeepsOldServing) {
  add_node("edge0");
  add_agent("edge0");
  post(kModels, model());
  serve_version_three();
  const std::string uid = api_.get(kPods + "/digits").body.at("metadata/uid").as_string();

  patch(kModels + "/digits", "{spec: {targetVersion: '4'}}");
  ASSERT_TRUE(eventually([&] { return first_work()["target"].as_string() == "4"; }));
  report(
      "{key: default/digits, exposed: '3', versions: [{version: '3', state: Ready}, {version: '4', "
      "state: Failed, reason: "
      "DigestMismatch, message: "
      "'expected sha256 44, found 55'}], serving: {version: '3', state: Ready}}");
  ASSERT_TRUE(
      eventually([&] { return condition("TargetVersionReady", "reason") == "DigestMismatch"; }));
  EXPECT_EQ(condition("TargetVersionReady", "message"), "version 4: expected sha256 44, found 55");
  EXPECT_TRUE(ready_is("True", "Serving"));
  EXPECT_EQ(status()["servingVersion"].as_string(), "3");
  EXPECT_EQ(status().at("modelStatus/lastFailure/reason").as_string(), "DigestMismatch");
  EXPECT_TRUE(eventually([&] { return has_warning("DigestMismatch"); }));

  patch(kModels + "/digits", "{spec: {targetVersion: '3'}}");
  ASSERT_TRUE(eventually([&] { return condition("TargetVersionReady", "status") == "True"; }));
  EXPECT_TRUE(status().at("modelStatus/lastFailure").is_null());

  patch(kModels + "/digits", "{spec: {targetVersion: '4'}}");
  ASSERT_TRUE(eventually([&] { return first_work()["target"].as_string() == "4"; }));
  report(
      "{key: default/digits, exposed: '4', versions: [{version: '3', state: Ready}, {version: '4', "
      "state: Ready}], serving: "
      "{version: '4', state: Ready}}");
  ASSERT_TRUE(eventually([&] { return status()["servingVersion"].as_string() == "4"; }));
  EXPECT_EQ(api_.get(kPods + "/digits").body.at("metadata/uid").as_string(), uid)
      << "the pod was made anew";
  EXPECT_TRUE(eventually([&] { return first_work()["versions"].size() == 2u; }))
      << "the last version is kept for a way back";
}

TEST_F(Cluster, PortChangeReplacesThePod) {
  add_node("edge0");
  add_agent("edge0");
  post(kModels, model());
  serve_version_three();
  const std::string uid = api_.get(kPods + "/digits").body.at("metadata/uid").as_string();
  patch(kModels + "/digits", "{spec: {servingPort: 9090}}");
  ASSERT_TRUE(eventually([&] {
    return api_.get(kPods + "/digits").body.at("metadata/deletionTimestamp").is_string();
  }));
  end_pod("digits");
  ASSERT_TRUE(eventually([&] {
    const Json pod = api_.get(kPods + "/digits").body;
    return pod["metadata"]["uid"].is_string() && pod["metadata"]["uid"].as_string() != uid;
  }));
  run_pod("digits", "edge0", "127.9.1.1");
  EXPECT_TRUE(eventually([&] { return status()["url"].as_string() == "http://127.9.1.1:9090"; }))
      << codec::write_json(status());
  EXPECT_TRUE(eventually(
      [&] { return first_work().at("serving/url").as_string() == "http://127.9.1.1:9090"; }));
}

TEST_F(Cluster, ChangedDefaultsApplyOnlyAfterPodDeletion) {
  add_node("edge0");
  add_agent("edge0");
  post(kModels, model());
  serve_version_three();
  const auto pod = [&] { return api_.get(kPods + "/digits").body; };
  const std::string uid = pod().at("metadata/uid").as_string();
  EXPECT_EQ(condition("PodCurrent", "status"), "");
  stop();

  servers_ = yaml("{onnx: {image: 'varda-serve:next', args: ['--new'], layout: numbered}}");
  start();
  ASSERT_TRUE(eventually([&] { return condition("PodCurrent", "reason") == "Outdated"; }));
  EXPECT_TRUE(ready_is("True", "Serving"));
  ASSERT_TRUE(becomes_idle());
  stop();
  EXPECT_EQ(pod().at("metadata/uid").as_string(), uid);
  EXPECT_TRUE(pod().at("metadata/deletionTimestamp").is_null());
  EXPECT_TRUE(first_work()["layout"].is_null())
      << "the pod that stays is shown its files as before";
  EXPECT_FALSE(has_warning("Outdated"));

  // A new operator of the same build writes nothing.
  EXPECT_TRUE(restart_writes_nothing());

  start();
  end_pod("digits");
  ASSERT_TRUE(eventually([&] {
    const std::string now = pod().at("metadata/uid").as_string();
    return !now.empty() && now != uid;
  }));
  EXPECT_EQ(pod().at("spec/containers/0/image").as_string(), "varda-serve:next");
  EXPECT_TRUE(eventually([&] { return condition("PodCurrent", "status").empty(); }));
  EXPECT_TRUE(eventually([&] { return first_work()["layout"].as_string() == "numbered"; }));
}

TEST_F(Cluster, EdgeModelMovesToTheCloudAndBack) {
  add_node("edge0");
  add_node("cloud", false);
  add_agent("edge0");
  post(kModels, model());
  serve_version_three();
  patch(kModels + "/digits", "{spec: {deployToLayer: cloud, nodeName: null, replicas: 2}}");
  ASSERT_TRUE(eventually([&] {
    return api_.get("/apis/apps/v1/namespaces/default/deployments/digits").status == 200;
  }));
  ASSERT_TRUE(eventually(
      [&] { return api_.get("/api/v1/namespaces/default/services/digits").status == 200; }));
  ASSERT_TRUE(eventually([&] {
    return api_.get(kPods + "/digits").body.at("metadata/deletionTimestamp").is_string();
  }));
  end_pod("digits");
  ASSERT_TRUE(eventually([&] { return work().empty(); }));
  ASSERT_TRUE(eventually([&] { return status()["node"].is_null() && status()["url"].is_null(); }));
  EXPECT_EQ(api_.get("/apis/apps/v1/namespaces/default/deployments/digits")
                .body.at("spec/replicas")
                .as_integer(),
            2);

  patch(kModels + "/digits", "{spec: {deployToLayer: edge, nodeName: edge0, replicas: 1}}");
  ASSERT_TRUE(eventually([&] {
    return api_.get("/apis/apps/v1/namespaces/default/deployments/digits").status == 404;
  }));
  ASSERT_TRUE(eventually(
      [&] { return api_.get("/api/v1/namespaces/default/services/digits").status == 404; }));
  ASSERT_TRUE(eventually([&] { return has_pod(); }));
}

TEST_F(Cluster, ServiceTypeChangesInPlace) {
  add_node("cloud", false);
  post(kModels, model("{deployToLayer: cloud, nodeName: null}"));
  const std::string path = "/api/v1/namespaces/default/services/digits";
  ASSERT_TRUE(
      eventually([&] { return api_.get(path).body.at("spec/type").as_string() == "NodePort"; }));
  const std::string uid = api_.get(path).body.at("metadata/uid").as_string();
  patch(kModels + "/digits", "{spec: {service: {type: ClusterIP}}}");
  EXPECT_TRUE(
      eventually([&] { return api_.get(path).body.at("spec/type").as_string() == "ClusterIP"; }));
  EXPECT_TRUE(service_port()["nodePort"].is_null());
  patch(kModels + "/digits", "{spec: {service: {type: NodePort}, servingPort: 9000}}");
  EXPECT_TRUE(eventually([&] { return service_port()["nodePort"].as_integer() > 0; }));
  EXPECT_TRUE(eventually([&] { return service_port()["port"].as_integer() == 9000; }));
  EXPECT_EQ(api_.get(path).body["spec"]["ports"].size(), 1u);
  EXPECT_EQ(api_.get(path).body.at("metadata/uid").as_string(), uid);
}

TEST_F(Cluster, CloudModelIsReadyWhenItsServiceForwards) {
  add_node("cloud", false);
  post(kModels, model("{deployToLayer: cloud, nodeName: null}"));
  ASSERT_TRUE(eventually([&] {
    return api_.get("/apis/apps/v1/namespaces/default/deployments/digits").status == 200;
  }));
  const Json deployment = api_.get("/apis/apps/v1/namespaces/default/deployments/digits").body;
  Json pod = Json::object({{"apiVersion", "v1"},
                           {"kind", "Pod"},
                           {"metadata", deployment.at("spec/template/metadata")},
                           {"spec", deployment.at("spec/template/spec")}});
  pod["metadata"].set("name", "digits-1");
  post(kPods, pod);
  run_pod("digits-1", "cloud", "127.8.0.1");
  ASSERT_TRUE(eventually([&] { return ready_is("False", "ServiceNotReady"); }))
      << codec::write_json(status());
  post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
       yaml("{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: digits-x7k2p, "
            "labels: "
            "{kubernetes.io/service-name: digits}}, addressType: IPv4, endpoints: [{addresses: "
            "[127.8.0.1], conditions: {ready: "
            "true}}], ports: [{port: 8080}]}"));
  ASSERT_TRUE(eventually([&] { return ready_is("True", "Serving"); }))
      << codec::write_json(status());
  const auto port = service_port()["nodePort"].as_integer();
  EXPECT_EQ(status()["url"].as_string(), "http://127.0.0.1:" + std::to_string(port));
  EXPECT_EQ(status()["servingVersion"].as_string(), "3");
}

TEST_F(Cluster, SecondModelOnPortWaitsUntilFirstMovesAway) {
  add_node("edge0");
  add_agent("edge0");
  post(kModels, model());
  serve_version_three();
  Json second =
      model("{modelName: second, nodeName: null, nodeSelector: {kubernetes.io/hostname: edge0}}");
  second["metadata"].set("name", "second");
  post(kModels, second);
  ASSERT_TRUE(eventually([&] { return ready_is("False", "PortInUse", "second"); }))
      << codec::write_json(status("second"));
  EXPECT_NE(condition("Ready", "message", "second").find("default/digits"), std::string::npos);
  patch(kModels + "/digits", "{spec: {servingPort: 9090}}");
  EXPECT_TRUE(eventually([&] { return condition("Ready", "reason", "second") != "PortInUse"; }));
}

TEST_F(Cluster, FailedPodIsReplacedAfterPause) {
  add_node("edge0");
  add_agent("edge0");
  post(kModels, model());
  serve_version_three();
  const auto uid = [&] { return api_.get(kPods + "/digits").body.at("metadata/uid").as_string(); };
  const std::string first = uid();
  patch_status(kPods + "/digits",
               "{phase: Failed, reason: Evicted, message: 'The node was low on resource: memory.', "
               "conditions: null}");
  ASSERT_TRUE(eventually([&] { return ready_is("False", "Evicted"); }));
  EXPECT_TRUE(eventually([&] { return has_warning("Evicted"); }));
  // Advances the time until the replacement, regardless of the controller's progress.
  std::chrono::minutes ahead(0);
  ASSERT_TRUE(eventually([&] {
    const std::string now = uid();
    if (!now.empty() && now != first) return true;
    clock_.set_ahead(ahead += std::chrono::minutes(6));
    patch(kModels + "/digits",
          "{metadata: {annotations: {touched: '" + std::to_string(ahead.count()) + "'}}}");
    return false;
  }));
  run_pod("digits", "edge0", "127.9.1.1");
  EXPECT_TRUE(eventually([&] { return ready_is("True", "Serving"); }));
}

TEST_F(Cluster, UnreachableNodeMakesReadyUnknownAndKeepsTheLastReport) {
  add_node("edge0");
  add_agent("edge0");
  post(kModels, model());
  serve_version_three();
  patch_status("/api/v1/nodes/edge0",
               "{conditions: [{type: Ready, status: Unknown, reason: AgentDisconnected}]}");
  ASSERT_TRUE(eventually([&] { return ready_is("Unknown", "NodeUnreachable"); }));
  EXPECT_EQ(status()["servingVersion"].as_string(), "3");
  EXPECT_EQ(status()["url"].as_string(), "http://127.9.1.1:8080");
  patch_status("/api/v1/nodes/edge0",
               "{conditions: [{type: Ready, status: 'True', reason: AgentConnected}]}");
  EXPECT_TRUE(eventually([&] { return ready_is("True", "Serving"); }));
}

TEST_F(Cluster, ModelScaledToZeroStopsServingAndKeepsFiles) {
  add_node("edge0");
  add_agent("edge0");
  post(kModels, model());
  serve_version_three();
  patch(kModels + "/digits/scale", "{spec: {replicas: 0}}");
  ASSERT_TRUE(eventually([&] { return ready_is("False", "ScaledToZero"); }));
  ASSERT_TRUE(eventually([&] {
    return api_.get(kPods + "/digits").body.at("metadata/deletionTimestamp").is_string();
  }));
  end_pod("digits");
  ASSERT_TRUE(eventually([&] { return work().size() == 1 && first_work()["serving"].is_null(); }));
  ASSERT_TRUE(eventually([&] { return status()["url"].is_null(); }));
  EXPECT_EQ(status()["cachedVersions"].size(), 1u);
}

TEST_F(Cluster, DeletedModelRemovesPodAndWork) {
  add_node("edge0");
  add_agent("edge0");
  post(kModels, model());
  serve_version_three();
  api_.remove(kModels + "/digits");
  ASSERT_TRUE(eventually([&] { return work().empty(); }));
  ASSERT_TRUE(eventually([&] {
    return api_.get(kPods + "/digits").body.at("metadata/deletionTimestamp").is_string();
  }));
}

TEST_F(Cluster, MovedModelLeavesTheFirstNode) {
  add_node("edge0");
  add_node("edge1");
  add_agent("edge0");
  add_agent("edge1");
  post(kModels, model());
  serve_version_three();
  patch(kModels + "/digits", "{spec: {nodeName: edge1}}");
  ASSERT_TRUE(eventually([&] { return work("edge0").empty() && work("edge1").size() == 1; }));
  ASSERT_TRUE(eventually([&] {
    return api_.get(kPods + "/digits").body.at("metadata/deletionTimestamp").is_string();
  }));
  end_pod("digits");
  report("{key: default/digits, exposed: '3', versions: [{version: '3', state: Ready}]}", "edge1");
  EXPECT_TRUE(eventually([&] { return has_pod(); }));
}

}  // namespace end_to_end_test
}  // namespace varda::controllers
