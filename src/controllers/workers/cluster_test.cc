// Workers over the real API server, in memory, with the controllers of all kinds. The test plays
// the nodes and writes their reports.

#include <map>
#include <set>

#include "controllers/testing/control_plane.h"

namespace varda::controllers::workers {
namespace {

using namespace testing;  // NOLINT: of a test, in a test

class WorkersInACluster : public ControlPlane {
 protected:
  void add_node(const std::string& name) { ControlPlane::add_node(name, "{line: '7'}"); }
  void add_agent(const std::string& name, const std::string& version = "v1") {
    ControlPlane::add_agent(name);
    expose(name, version);
  }
  /// The node reports the version of the worker's model.
  void expose(const std::string& node, const std::string& version) {
    patch_status(kEdgeNodes + "/" + node,
                 "{models: [{key: default/bright.edge, exposed: " + version +
                     ", versions: [{version: " + version + ", state: Ready, sha256: '" +
                     std::string(64, version.back()) + "'}]}]}");
  }
  void add_model() {
    post(kModels,
         "{apiVersion: sedna.io/v1alpha1, kind: Model, metadata: {name: little}, spec: {format: "
         "json, version: v1, url: "
         "'http://files/1', sha256: '" +
             std::string(64, '1') + "'}}");
  }
  void add_service(const std::string& where, const std::string& name = "bright",
                   const std::string& cloud = "") {
    post(kServices,
         "{apiVersion: sedna.io/v1alpha1, kind: JointInferenceService, metadata: {name: " + name +
             "}, spec: {edgeWorker: {model: "
             "{name: little}, " +
             where + ", workerSpec: {containers: [{image: 'edge-worker:1'}]}}, cloudWorker: {" +
             cloud +
             "model: {name: little}, workerSpec: "
             "{containers: [{image: 'cloud-worker:1'}]}}}}");
  }
  /// "REASON: MESSAGE" of EdgeReady.
  std::string edge_ready() {
    const Json service = get(kServices + "/bright");
    for (const Json& one : service.at("status/conditions").as_array()) {
      if (one["type"].as_string() == "EdgeReady")
        return one["reason"].as_string() + ": " + one["message"].as_string();
    }
    return "";
  }
  /// Gives the cloud worker's Service an address and a ready endpoint.
  void answer_in_the_cloud() {
    const std::string service = kCoreServices + "/bright-cloud";
    ASSERT_TRUE(eventually([&] { return api_.get(service).status == 200; }));
    add_slice("bright-cloud", "203.0.113.7", 5000);
  }

  struct Seen {
    std::string uid, node, image, version;
    bool ready = false;
  };
  std::map<std::string, Seen> pods() {
    std::map<std::string, Seen> out;
    for (const Json& pod :
         api_.get(kPods + "?labelSelector=edgeai.io/worker=edge").body["items"].as_array()) {
      Seen& seen = out[pod["metadata"]["name"].as_string()];
      seen.uid = pod["metadata"]["uid"].as_string();
      seen.node = pod["metadata"]["labels"]["edgeai.io/worker-node"].as_string();
      seen.version = pod["metadata"]["annotations"]["edgeai.io/model-version"].as_string();
      seen.image = pod.at("spec/containers/0/image").as_string();
      for (const Json& condition : pod.at("status/conditions").as_array())
        seen.ready |=
            condition["type"].as_string() == "Ready" && condition["status"].as_string() == "True";
    }
    return out;
  }
  void make_ready(const std::string& pod) {
    patch_status(kPods + "/" + pod,
                 "{phase: Running, podIP: 10.0.0.5, conditions: [{type: Ready, status: 'True'}]}");
  }
  /// Waits until the controller has seen the ready pods; pods that are not ready would be replaced
  /// at once.
  void make_all_ready() {
    const auto all = pods();
    for (const auto& pod : all) make_ready(pod.first);
    ASSERT_TRUE(eventually([&] {
      return api_.get(kServices + "/bright").body.at("status/active").as_integer() ==
             static_cast<std::int64_t>(all.size());
    }));
  }
  std::set<std::string> workers_of(const std::string& node) {
    std::set<std::string> out;
    for (const Json& worker : api_.get(kEdgeNodes + "/" + node).body.at("spec/workers").as_array())
      out.insert(worker["key"].as_string());
    return out;
  }
};

// The steps in every order: each step may be the last one that a pod waits for.
class WorkersInAnyOrder : public WorkersInACluster, public ::testing::WithParamInterface<int> {};

TEST_P(WorkersInAnyOrder, WorkerRunsAfterAnyOrderOfCreation) {
  std::vector<std::pair<int, std::function<void()>>> steps{{0, [&] { add_node("edge0"); }},
                                                           {1, [&] { add_agent("edge0"); }},
                                                           {2, [&] { add_model(); }},
                                                           {3, [&] {
                                                              add_service("nodeName: edge0");
                                                              answer_in_the_cloud();
                                                            }}};
  const auto by_number = [](const auto& a, const auto& b) { return a.first < b.first; };
  for (int i = 0; i < GetParam(); ++i) std::next_permutation(steps.begin(), steps.end(), by_number);
  for (const auto& step : steps) {
    EXPECT_TRUE(pods().empty());
    step.second();
  }
  EXPECT_TRUE(eventually([&] { return pods().size() == 1; }))
      << api_.get(kServices + "/bright").text;
  EXPECT_EQ(pods().begin()->first, "bright-edge-adfa01a70198");
  EXPECT_TRUE(eventually([&] {
    return workers_of("edge0") == std::set<std::string>{"default/bright-edge-adfa01a70198"};
  }));
  const auto model = [&] {
    return api_.get(kEdgeNodes + "/edge0").body.at("spec/models/0/key").as_string();
  };
  EXPECT_TRUE(eventually([&] { return model() == "default/bright.edge"; }));
}

// A selection of the 24 orders: each step is last once, and the service is first once.
INSTANTIATE_TEST_SUITE_P(Order, WorkersInAnyOrder, ::testing::Values(0, 4, 9, 16, 18, 23));

TEST_F(WorkersInACluster, TemplateChangeReplacesReplicasOneByOne) {
  add_node("edge0");
  add_agent("edge0");
  add_model();
  add_service("nodeName: edge0, replicas: 3");
  answer_in_the_cloud();
  ASSERT_TRUE(eventually([&] { return pods().size() == 3; }));
  make_all_ready();
  const auto before = pods();
  patch(kServices + "/bright",
        "{spec: {edgeWorker: {workerSpec: {containers: [{image: 'edge-worker:2'}]}}}}");
  for (int replaced = 1; replaced <= 3; ++replaced) {
    // One pod is replaced; until it is Ready, no other pod is removed.
    std::string fresh;
    ASSERT_TRUE(eventually([&] {
      for (const auto& [name, pod] : pods()) {
        if (!pod.ready && pod.image == "edge-worker:2") fresh = name;
      }
      return !fresh.empty();
    })) << replaced;
    const auto now = pods();
    EXPECT_EQ(
        std::count_if(now.begin(), now.end(), [](const auto& pod) { return pod.second.ready; }), 2)
        << replaced;
    EXPECT_EQ(std::count_if(now.begin(), now.end(),
                            [](const auto& pod) { return pod.second.image == "edge-worker:2"; }),
              replaced);
    make_ready(fresh);
  }
  for (const auto& [name, pod] : pods()) EXPECT_NE(pod.uid, before.at(name).uid);
}

TEST_F(WorkersInACluster, WorkersFollowNodesOfTheSelector) {
  add_model();
  add_service("selector: {matchLabels: {line: '7'}}");
  answer_in_the_cloud();
  for (const char* node : {"edge0", "edge1"}) {
    add_node(node);
    add_agent(node);
  }
  const auto nodes = [&] {
    std::set<std::string> out;
    for (const auto& pod : pods()) out.insert(pod.second.node);
    return out;
  };
  EXPECT_TRUE(eventually([&] { return nodes() == std::set<std::string>{"edge0", "edge1"}; }));
  patch("/api/v1/nodes/edge0", "{metadata: {labels: {line: '8'}}}");
  EXPECT_TRUE(eventually([&] { return nodes() == std::set<std::string>{"edge1"}; }));
  EXPECT_TRUE(
      eventually([&] { return workers_of("edge0").empty() && workers_of("edge1").size() == 1; }));
  patch("/api/v1/nodes/edge0", "{metadata: {labels: {line: '7'}}}");
  EXPECT_TRUE(eventually([&] { return nodes() == std::set<std::string>{"edge0", "edge1"}; }));
  ASSERT_EQ(api_.remove("/api/v1/nodes/edge1").status, 200);
  EXPECT_TRUE(eventually([&] { return nodes() == std::set<std::string>{"edge0"}; }));
}

TEST_F(WorkersInACluster, NewModelVersionReplacesPodOnceNodeHasIt) {
  add_node("edge0");
  add_agent("edge0");
  add_model();
  add_service("nodeName: edge0");
  answer_in_the_cloud();
  ASSERT_TRUE(eventually([&] { return pods().size() == 1; }));
  make_all_ready();
  const std::string first = pods().begin()->second.uid;
  patch(kModels + "/little",
        "{spec: {version: v2, url: 'http://files/2', sha256: '" + std::string(64, '2') + "'}}");
  EXPECT_TRUE(eventually([&] {
    return api_.get(kEdgeNodes + "/edge0").body.at("spec/models/0/target").as_string() == "v2";
  }));
  EXPECT_EQ(pods().begin()->second.uid, first) << "it is not there yet";
  expose("edge0", "v2");
  EXPECT_TRUE(eventually([&] {
    const auto now = pods();
    return now.size() == 1 && now.begin()->second.version == "v2" &&
           now.begin()->second.uid != first;
  }));
}

TEST_F(WorkersInACluster, WorkerWithAssignmentCapabilityKeepsItsPod) {
  add_node("edge0");
  add_agent("edge0");
  add_model();
  add_service("nodeName: edge0");
  answer_in_the_cloud();
  ASSERT_TRUE(eventually([&] { return pods().size() == 1; }));
  const std::string job = api_.get(kServices + "/bright").body.at("metadata/uid").as_string();
  patch_status(kEdgeNodes + "/edge0",
               "{workers: [{key: default/bright-edge-adfa01a70198, uid: " + job +
                   ", report: {registered: {version: '1', capabilities: [assignment]}, metrics: "
                   "{inferenceNumber: 7}}}]}");
  make_all_ready();
  const std::string first = pods().begin()->second.uid;
  // The controller has seen the report. (A change of counts alone is published with a delay.)
  ASSERT_TRUE(eventually([&] {
    return api_.get(kServices + "/bright").body.at("status/inferenceNumber").as_integer() == 7;
  }));
  patch(kServices + "/bright", "{spec: {edgeWorker: {hardExampleMining: {name: NeverCloud}}}}");
  const auto reported = [&] {
    return api_.get(kEdgeNodes + "/edge0")
        .body.at("spec/workers/0/assignment/hardExampleMining/name");
  };
  EXPECT_TRUE(eventually([&] { return reported().as_string() == "NeverCloud"; }));
  // The pod's annotation shows that the pod was checked with the current policy.
  const auto hash = [&] {
    return api_.get(kPods + "/bright-edge-adfa01a70198")
        .body.at("metadata/annotations")["edgeai.io/assignment-hash"];
  };
  const Json before = hash();
  patch(kServices + "/bright", "{spec: {edgeWorker: {hardExampleMining: {name: AlwaysCloud}}}}");
  EXPECT_TRUE(
      eventually([&] { return reported().as_string() == "AlwaysCloud" && hash() != before; }));
  EXPECT_EQ(pods().begin()->second.uid, first);
}

TEST_F(WorkersInACluster, EdgeWorkerStartsOnceCloudHasAnAddress) {
  add_node("edge0");
  add_agent("edge0");
  add_model();
  // Without a node port the worker has no address until a pod of it is ready.
  add_service("nodeName: edge0", "bright", "service: {type: ClusterIP}, ");
  ASSERT_TRUE(eventually([&] { return edge_ready().starts_with("CloudAddressPending"); }))
      << edge_ready();
  ASSERT_TRUE(becomes_idle());
  EXPECT_TRUE(pods().empty());
  answer_in_the_cloud();
  EXPECT_TRUE(eventually([&] { return pods().size() == 1; })) << edge_ready();
}

TEST_F(WorkersInACluster, ExcessNodeGetsNoWorkerUntilAPlaceIsFree) {
  for (int i = 0; i <= 500; ++i) {  // order of age equals order of name
    post(kNodes, "{apiVersion: v1, kind: Node, metadata: {name: n" + std::to_string(1000 + i) +
                     ", labels: {line: '7'}}}");
  }
  add_model();
  add_service("selector: {matchLabels: {line: '7'}}");
  ASSERT_TRUE(eventually([&] { return edge_ready().starts_with("TooManyNodes"); })) << edge_ready();
  EXPECT_NE(edge_ready().find("1 nodes have no worker"), std::string::npos) << edge_ready();
  const auto reported = [&](const std::string& node) {
    const Json models = get(kEdgeNodes + "/" + node).at("spec/models");
    return models.is_null() ? "nothing"
           : models.empty() ? "no model"
                            : models.as_array().front()["key"].as_string();
  };
  add_agent("n1000");
  ASSERT_TRUE(eventually([&] { return reported("n1000") == "default/bright.edge"; }));
  add_agent("n1500");
  ASSERT_TRUE(eventually([&] { return reported("n1500") != "nothing"; }));
  EXPECT_EQ(reported("n1500"), "no model");
  EXPECT_TRUE(workers_of("n1500").empty());
  ASSERT_EQ(api_.remove(kNodes + "/n1001").status, 200);
  EXPECT_TRUE(eventually([&] { return reported("n1500") == "default/bright.edge"; }));
  EXPECT_TRUE(eventually([&] { return !edge_ready().starts_with("TooManyNodes"); }))
      << edge_ready();
}

TEST_F(WorkersInACluster, SelectorWithReplicasUsesTheNodesThatJoinedFirst) {
  for (const char* node : {"n1", "n2", "n3"}) {  // order of age equals order of name
    post(kNodes, std::string("{apiVersion: v1, kind: Node, metadata: {name: ") + node +
                     ", labels: {line: '7'}}}");
    add_agent(node);
  }
  add_model();
  add_service("selector: {matchLabels: {line: '7'}}, replicas: 2");
  answer_in_the_cloud();
  const auto nodes = [&] {
    std::set<std::string> names;
    for (const auto& [name, pod] : pods()) names.insert(pod.node);
    return names;
  };
  using Names = std::set<std::string>;
  ASSERT_TRUE(eventually([&] { return nodes() == Names{"n1", "n2"}; })) << edge_ready();
  ASSERT_TRUE(becomes_idle());
  EXPECT_TRUE(workers_of("n3").empty());
  // A node that leaves the group makes room for the next one.
  patch(kNodes + "/n1", "{metadata: {labels: {line: '8'}}}");
  EXPECT_TRUE(eventually([&] { return workers_of("n3").size() == 1; })) << edge_ready();
  EXPECT_TRUE(eventually([&] { return nodes().contains("n3"); })) << edge_ready();
  make_all_ready();
  EXPECT_TRUE(eventually([&] { return nodes() == Names{"n2", "n3"}; })) << edge_ready();
  patch(kServices + "/bright", "{spec: {edgeWorker: {replicas: 3}}}");
  EXPECT_TRUE(eventually([&] { return edge_ready().starts_with("TooFewNodes"); })) << edge_ready();
  // Without replicas the worker runs on every node of the group.
  patch(kNodes + "/n1", "{metadata: {labels: {line: '7'}}}");
  patch(kServices + "/bright", "{spec: {edgeWorker: {replicas: null}}}");
  EXPECT_TRUE(eventually([&] { return nodes() == Names{"n1", "n2", "n3"}; })) << edge_ready();
}

}  // namespace
}  // namespace varda::controllers::workers
