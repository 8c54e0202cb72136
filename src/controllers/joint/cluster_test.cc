// JointInferenceServices over the real API server, in memory. The test plays agents and runners: it
// writes their reports.

#include <mutex>

#include "controllers/testing/control_plane.h"

namespace varda::controllers::joint {
namespace {

using namespace testing;  // NOLINT: of a test, in a test

class JointCluster : public ControlPlane {
 protected:
  void add_node(const std::string& name) {
    ControlPlane::add_node(name, "{edgeai.io/layer: edge}");
  }
  void add_model(const std::string& name, char digit) {
    post(kModels, "{apiVersion: sedna.io/v1alpha1, kind: Model, metadata: {name: " + name +
                      "}, spec: {format: onnx, url: 'http://files/" + name + ".tar.gz', sha256: '" +
                      std::string(64, digit) + "'}}");
  }
  void add_service() {
    post(kServices, R"(
apiVersion: sedna.io/v1alpha1
kind: JointInferenceService
metadata: {name: digits}
spec:
  edgeWorker:
    model: {name: small}
    nodeName: edge0
    hardExampleMining: {name: CrossEntropy}
  cloudWorker:
    model: {name: big}
)");
  }
  void add_world() {
    add_node("edge0");
    add_agent("edge0");
    add_model("small", '1');
    add_model("big", '2');
  }

  Json status() { return get(kServices + "/digits")["status"]; }
  std::string condition(std::string_view type) {
    const Json now = status();
    for (const Json& one : now["conditions"].as_array()) {
      if (one["type"].as_string() == type)
        return one["status"].as_string() + " " + one["reason"].as_string();
    }
    return "";
  }
  // The first tier in the node's work list, or null.
  Json work() {
    const Json models = get(kEdgeNodes + "/edge0").at("spec/models");
    for (const Json& model : models.as_array()) {
      if (model["key"].as_string() == "default/digits.edge") return model;
    }
    return {};
  }
  std::string cloud_url() { return work().at("joint/tiers/1/url").as_string(); }
  bool has_event(std::string_view reason) {
    const Json events = get("/api/v1/namespaces/default/events");
    for (const Json& event : events["items"].as_array()) {
      if (event["reason"].as_string() == reason) return true;
    }
    return false;
  }

  // Plays the scheduler and the runner.
  void run_pod(const std::string& name, const std::string& node = "edge0") {
    const auto bound = api_.post(kPods + "/" + name + "/binding",
                                 yaml("{apiVersion: v1, kind: Binding, metadata: {name: " + name +
                                      "}, target: {kind: Node, name: " + node + "}}"));
    ASSERT_EQ(bound.status, 201) << bound.text;
    patch_status(kPods + "/" + name,
                 "{phase: Running, podIP: 127.9.1.1, conditions: [{type: Ready, status: 'True'}]}");
  }
  void end_pod(const std::string& name) {
    api_.remove(kPods + "/" + name + "?gracePeriodSeconds=0");
  }
  // Plays the agent's report: the target version serves, with these counts and this state of the
  // tier above.
  void report(std::string_view counts = "epoch: e1, counters: {inferences: 0}",
              const std::string& cloud = "Ready") {
    const std::string target = work()["target"].as_string();
    patch_status(
        kEdgeNodes + "/edge0",
        "{models: [{key: default/digits.edge, exposed: '" + target + "', versions: [{version: '" +
            target + "', state: Ready}], serving: {version: '" + target +
            "', state: Ready}, joint: {" + std::string(counts) +
            ", tiers: [{name: edge, state: Ready}, {name: cloud, state: " + cloud + "}]}}]}");
  }
  void expose() {
    const std::string target = work()["target"].as_string();
    patch_status(kEdgeNodes + "/edge0", "{models: [{key: default/digits.edge, exposed: '" + target +
                                            "', versions: [{version: '" + target +
                                            "', state: Ready}]}]}");
  }
  void serve() {
    ASSERT_TRUE(eventually([&] { return !work().is_null(); }));
    expose();
    ASSERT_TRUE(eventually([&] { return exists(kPods + "/digits-edge-adfa01a70198"); }));
    run_pod("digits-edge-adfa01a70198");
    ASSERT_TRUE(eventually([&] {
      return work().at("serving/url").as_string() == "http://127.9.1.1:18080";
    })) << codec::write_json(work());
    report();
    ASSERT_TRUE(eventually([&] { return condition("EdgeReady") == "True Serving"; }))
        << codec::write_json(status());
    EXPECT_EQ(status()["url"].as_string(), "http://127.9.1.1:18080");
  }
  // Makes a Ready pod of the Deployment behind its Service, like a cluster.
  void answer(const std::string& name) {
    ASSERT_TRUE(eventually([&] { return exists(kDeployments + "/" + name); }));
    const Json made = get(kDeployments + "/" + name).at("spec/template/metadata");
    Json pod = yaml("{apiVersion: v1, kind: Pod, metadata: {name: " + name +
                    "-1}, spec: {containers: [{name: a, image: other}]}}");
    pod["metadata"].set("labels", made["labels"]);
    if (made.contains("annotations")) pod["metadata"].set("annotations", made["annotations"]);
    const auto reply = api_.post(kPods, pod);
    ASSERT_EQ(reply.status, 201) << reply.text;
    patch_status(kPods + "/" + name + "-1",
                 "{phase: Running, podIP: 127.9.1.9, conditions: [{type: Ready, status: 'True'}]}");
    add_slice(name, "127.9.1.9", 8080);
  }
  // Makes the cloud's model answer, so that the service is Ready for the first time.
  void serve_all() {
    serve();
    answer("digits-cloud");
    ASSERT_TRUE(eventually([&] { return condition("Ready") == "True Serving"; }))
        << codec::write_json(status());
  }
  std::string pod_uid() {
    return get(kPods + "/digits-edge-adfa01a70198").at("metadata/uid").as_string();
  }
};

// A Model of edgeai.io may come late, and may change.
TEST_F(JointCluster, ModelOfEdgeaiServesAndUpdates) {
  const std::string edgeai = "/apis/edgeai.io/v1alpha1/namespaces/default/models";
  add_node("edge0");
  add_agent("edge0");
  add_model("big", '2');
  add_service();
  ASSERT_TRUE(eventually([&] { return condition("EdgeReady") == "False ModelNotFound"; }));
  post(
      edgeai,
      "{apiVersion: edgeai.io/v1alpha1, kind: Model, metadata: {name: small}, spec: {format: onnx, "
      "modelUrl: 'http://files/small.tar.gz', sha256: '" +
          std::string(64, '1') + "'}}");
  serve();
  EXPECT_EQ(work()["target"].as_string(), "111111111111");
  patch(edgeai + "/small", "{spec: {sha256: '" + std::string(64, '3') + "'}}");
  EXPECT_TRUE(eventually([&] { return work()["target"].as_string() == "333333333333"; }));
  add_model("small", '4');  // now both groups have the name
  EXPECT_TRUE(eventually([&] { return condition("EdgeReady") == "False ModelAmbiguous"; }))
      << condition("EdgeReady");
  EXPECT_EQ(work()["target"].as_string(), "333333333333") << "the present work stays";
}

TEST_F(JointCluster, TwoModelsFormOneServiceAndRestartWritesNothing) {
  add_world();
  add_service();
  serve_all();
  ASSERT_TRUE(eventually([&] { return exists(kInferenceModels + "/digits-cloud"); }));
  EXPECT_TRUE(eventually([&] { return has_event("Serving"); }));
  // A change of the work list may be delayed, which becomes_idle() does not see.
  ASSERT_TRUE(eventually([&] { return !cloud_url().empty(); }));
  ASSERT_TRUE(becomes_idle());
  stop();
  EXPECT_TRUE(restart_writes_nothing());
}

TEST_F(JointCluster, ServiceIsReadyAfterAllTiersAndStaysReadyWithoutCloud) {
  add_world();
  add_service();
  serve();
  EXPECT_EQ(condition("Ready").substr(0, 5), "False") << codec::write_json(status());
  EXPECT_EQ(condition("Degraded").substr(0, 4), "True") << codec::write_json(status());
  EXPECT_EQ(cloud_url(), "") << "nothing forwards there yet";
  report("epoch: e1, counters: {inferences: 0}", "Unknown");
  answer("digits-cloud");
  ASSERT_TRUE(eventually([&] { return condition("Ready") == "False TierNotReached"; }))
      << codec::write_json(status());
  ASSERT_TRUE(eventually([&] { return !cloud_url().empty(); }));
  report();
  ASSERT_TRUE(eventually([&] { return condition("Ready") == "True Serving"; }))
      << codec::write_json(status());
  EXPECT_EQ(condition("Degraded"), "False AllTiersAsked");
  patch_status(kPods + "/digits-cloud-1", "{conditions: [{type: Ready, status: 'False'}]}");
  ASSERT_TRUE(eventually([&] { return condition("Degraded") == "True PodNotReady"; }))
      << codec::write_json(status());
  EXPECT_EQ(condition("Ready"), "True Serving");
}

TEST_F(JointCluster, ServiceCreatedFirstWaitsForModelsAndNodes) {
  add_service();
  ASSERT_TRUE(eventually([&] { return condition("Ready") == "False ModelNotFound"; }))
      << codec::write_json(status());
  EXPECT_TRUE(eventually([&] { return has_event("ModelNotFound"); }));
  add_model("big", '2');
  ASSERT_TRUE(eventually([&] { return exists(kInferenceModels + "/digits-cloud"); }));
  add_model("small", '1');
  ASSERT_TRUE(eventually([&] { return condition("Ready") == "False NodeNotFound"; }))
      << codec::write_json(status());
  add_node("edge0");
  ASSERT_TRUE(eventually([&] { return condition("Ready") == "False AgentMissing"; }))
      << codec::write_json(status());
  add_agent("edge0");
  serve();
}

TEST_F(JointCluster, DigestOfAServedModelIsPinnedAtFirstUse) {
  stop();
  std::mutex mutex;
  std::vector<std::string> asked;
  hosting::FileDigest answer{hosting::FileDigest::State::kFailed, "", 0, "no route to host"};
  file_digests_ = [&](const std::string& url) {
    const std::lock_guard lock(mutex);
    asked.push_back(url);
    return answer;
  };
  start();
  add_node("edge0");
  add_agent("edge0");
  add_model("big", '2');
  for (const char* name : {"small", "unused"})
    post(kModels, std::string("{apiVersion: sedna.io/v1alpha1, kind: Model, metadata: {name: ") +
                      name + "}, spec: {format: onnx, url: 'http://files/" + name + ".onnx'}}");
  add_service();
  ASSERT_TRUE(eventually([&] { return condition("Ready") == "False DigestMissing"; }))
      << codec::write_json(status());
  const auto message = [&] {
    const Json now = status();
    for (const Json& one : now["conditions"].as_array())
      if (one["type"].as_string() == "Ready") return one["message"].as_string();
    return std::string();
  };
  ASSERT_TRUE(eventually([&] { return message().find("no route to host") != std::string::npos; }))
      << message();
  {
    const std::lock_guard lock(mutex);
    answer = {hosting::FileDigest::State::kRead, std::string(64, '7'), 4711, ""};
  }
  patch(kModels + "/small", "{metadata: {annotations: {look: again}}}");
  ASSERT_TRUE(eventually([&] {
    return work().at("versions/0/sha256").as_string() == std::string(64, '7');
  })) << codec::write_json(work());
  EXPECT_EQ(work()["target"].as_string(), "777777777777");
  EXPECT_EQ(get(kModels + "/small").at("status/pinned/bytes").as_integer(), 4711);
  EXPECT_FALSE(get(kModels + "/unused")["status"].contains("pinned"));
  // Another version is read again, and the first digest no longer counts.
  {
    const std::lock_guard lock(mutex);
    answer.sha256 = std::string(64, '8');
  }
  patch(kModels + "/small", "{spec: {version: next}}");
  ASSERT_TRUE(eventually([&] { return work()["target"].as_string() == "next"; }));
  stop();
  for (const std::string& url : asked) EXPECT_EQ(url, "http://files/small.onnx");
}

TEST_F(JointCluster, PolicyAndModelChangesUpdateWorkListWithoutNewPod) {
  add_world();
  add_service();
  serve();
  const std::string pod = pod_uid();
  patch(kServices + "/digits", "{spec: {edgeWorker: {hardExampleMining: {name: AlwaysCloud}}}}");
  ASSERT_TRUE(eventually(
      [&] { return work().at("joint/tiers/0/policy/name").as_string() == "AlwaysCloud"; }));
  patch(kModels + "/small", "{spec: {sha256: '" + std::string(64, '5') + "', version: next}}");
  ASSERT_TRUE(eventually([&] { return work()["target"].as_string() == "next"; }))
      << codec::write_json(work());
  EXPECT_EQ(work()["versions"].size(), 2u)
      << "what serves stays until the next one does: " << codec::write_json(work());
  report();
  ASSERT_TRUE(eventually([&] { return status().at("endpoints/0/version").as_string() == "next"; }));
  EXPECT_EQ(pod_uid(), pod);
  EXPECT_EQ(condition("EdgeReady"), "True Serving");
}

TEST_F(JointCluster, ForeignObjectsOfTheSameNameAreNotChanged) {
  add_world();
  const std::string foreign = R"(
apiVersion: ai.kubeedge.io/v1alpha1
kind: InferenceModel
metadata: {name: digits-cloud}
spec: {modelName: other, deployToLayer: cloud, image: other}
)";
  post(kInferenceModels, foreign);
  post(kPods,
       "{apiVersion: v1, kind: Pod, metadata: {name: digits-edge-adfa01a70198}, spec: {containers: "
       "[{name: a, image: other}]}}");
  ASSERT_TRUE(eventually([&] { return manager_->ready() && manager_->idle(); }));
  const Json model = get(kInferenceModels + "/digits-cloud")["spec"],
             pod = get(kPods + "/digits-edge-adfa01a70198");
  add_service();
  ASSERT_TRUE(eventually([&] { return condition("CloudReady") == "False NameInUse"; }))
      << codec::write_json(status());
  ASSERT_TRUE(eventually([&] { return !work().is_null(); }));
  expose();
  ASSERT_TRUE(eventually([&] { return condition("EdgeReady") == "False NameInUse"; }))
      << codec::write_json(status());
  EXPECT_EQ(get(kInferenceModels + "/digits-cloud")["spec"], model);
  EXPECT_EQ(get(kPods + "/digits-edge-adfa01a70198"), pod);
  api_.remove(kInferenceModels + "/digits-cloud");
  end_pod("digits-edge-adfa01a70198");
  // The ends of the model and of the pod both cause a reconcile.
  ASSERT_TRUE(eventually([&] {
    return get(kInferenceModels + "/digits-cloud").at("spec/modelName").as_string() == "big";
  }));
  ASSERT_TRUE(eventually(
      [&] { return pod_uid() != pod.at("metadata/uid").as_string() && !pod_uid().empty(); }));
}

class MovedService : public JointCluster {
 protected:
  // Moves the service from edge0 to edge1, where nothing runs yet.
  void move() {
    add_world();
    add_service();
    serve_all();
    add_node("edge1");
    add_agent("edge1");
    patch(kServices + "/digits", "{spec: {edgeWorker: {nodeName: edge1}}}");
  }
  bool leaves() { return get(kOld)["metadata"].contains("deletionTimestamp"); }
  void take_up() {
    const auto target = [&] {
      return get(kEdgeNodes + "/edge1").at("spec/models/0/target").as_string();
    };
    ASSERT_TRUE(eventually([&] { return !target().empty(); }));
    EXPECT_FALSE(leaves());
    EXPECT_FALSE(work().is_null()) << "its pod is there";
    const std::string has = "key: default/digits.edge, exposed: '" + target() +
                            "', versions: [{version: '" + target() + "', state: Ready}]";
    patch_status(kEdgeNodes + "/edge1", "{models: [{" + has + "}]}");
    ASSERT_TRUE(eventually([&] { return exists(kPods + "/digits-edge-b4baca894ba0"); }));
    EXPECT_FALSE(leaves());
    run_pod("digits-edge-b4baca894ba0", "edge1");
    patch_status(kEdgeNodes + "/edge1",
                 "{models: [{" + has + ", serving: {version: '" + target() + "', state: Ready}}]}");
    ASSERT_TRUE(eventually([&] { return leaves(); })) << codec::write_json(status());
    ASSERT_TRUE(eventually([&] { return condition("EdgeReady") == "True Serving"; }))
        << codec::write_json(status());
    EXPECT_EQ(status()["endpoints"].size(), 1u);
    EXPECT_EQ(status().at("endpoints/0/node").as_string(), "edge1");
    EXPECT_FALSE(work().is_null()) << "its pod is ending";
  }
  const std::string kOld = kPods + "/digits-edge-adfa01a70198";
};

TEST_F(MovedService, OldNodeServesUntilNewNodeAnswers) {
  move();
  ASSERT_TRUE(eventually([&] { return condition("EdgeReady") == "False WaitingForNode"; }))
      << codec::write_json(status());
  EXPECT_EQ(condition("Ready"), "True Serving");
  EXPECT_EQ(status().at("endpoints/1/node").as_string(), "edge0") << codec::write_json(status());
  take_up();
  end_pod("digits-edge-adfa01a70198");
  EXPECT_TRUE(eventually([&] { return work().is_null(); }));
}

TEST_F(MovedService, ServiceLeavesDeadNode) {
  move();
  patch_status("/api/v1/nodes/edge0",
               "{conditions: [{type: Ready, status: Unknown, reason: NodeStatusUnknown}]}");
  take_up();
  EXPECT_EQ(condition("Ready"), "True Serving");
  EXPECT_TRUE(leaves()) << "nobody is there to end it";
}

TEST_F(JointCluster, DeletedServiceLeavesNoObjects) {
  add_world();
  add_service();
  serve();
  ASSERT_TRUE(eventually([&] { return exists(kInferenceModels + "/digits-cloud"); }));
  api_.remove(kServices + "/digits");
  ASSERT_TRUE(eventually([&] { return work().is_null(); }));
  ASSERT_TRUE(eventually([&] { return !exists(kInferenceModels + "/digits-cloud"); }));
  ASSERT_TRUE(eventually([&] {
    return !exists(kPods + "/digits-edge-adfa01a70198") ||
           get(kPods + "/digits-edge-adfa01a70198")["metadata"].contains("deletionTimestamp");
  }));
  end_pod("digits-edge-adfa01a70198");
  ASSERT_TRUE(eventually([&] {
    return get(kDeployments)["items"].empty() && get(kCoreServices)["items"].size() <= 1;
  }));
}

TEST_F(JointCluster, ReferencedModelReplacesChildOnceItServes) {
  add_world();
  add_service();
  serve();
  ASSERT_TRUE(eventually([&] { return exists(kInferenceModels + "/digits-cloud"); }));
  answer("digits-cloud");
  ASSERT_TRUE(eventually([&] { return condition("CloudReady") == "True Serving"; }))
      << codec::write_json(status());
  const std::string first = get(kInferenceModels + "/digits-cloud").at("status/url").as_string();
  ASSERT_TRUE(eventually([&] { return cloud_url() == first; }));
  post(kInferenceModels,
       "{apiVersion: ai.kubeedge.io/v1alpha1, kind: InferenceModel, metadata: {name: shared}, "
       "spec: {modelName: shared, "
       "deployToLayer: cloud, image: other}}");
  patch(kServices + "/digits",
        "{spec: {cloudWorker: {model: {name: shared, kind: InferenceModel}}}}");
  ASSERT_TRUE(eventually([&] { return status()["observedGeneration"].as_integer() == 2; }));
  EXPECT_TRUE(exists(kInferenceModels + "/digits-cloud")) << "the next one does not answer yet";
  EXPECT_EQ(cloud_url(), first);
  answer("shared");
  ASSERT_TRUE(eventually([&] { return condition("CloudReady") == "True Serving"; }))
      << codec::write_json(status());
  ASSERT_TRUE(eventually([&] { return !exists(kInferenceModels + "/digits-cloud"); }));
  EXPECT_EQ(cloud_url(), get(kInferenceModels + "/shared").at("status/url").as_string())
      << "told before the other one went";
}

TEST_F(JointCluster, EdgeInferenceModelAsLaterTierIsAskedWhereItServes) {
  add_world();
  add_node("edge1");
  add_agent("edge1");
  post(kInferenceModels, R"(
apiVersion: ai.kubeedge.io/v1alpha1
kind: InferenceModel
metadata: {name: line}
spec:
  modelName: parts
  deployToLayer: edge
  frameworkType: onnx
  nodeName: edge1
  servingPort: 8085
  targetVersion: "1"
  manifest:
  - {version: "1", downloadURL: "http://files/1.tgz", sha256sum: ")" +
                             std::string(64, '8') + R"("}
  - {version: "2", downloadURL: "http://files/2.tgz", sha256sum: ")" +
                             std::string(64, '9') + R"("}
)");
  post(kServices, R"(
apiVersion: sedna.io/v1alpha1
kind: JointInferenceService
metadata: {name: digits}
spec:
  tiers:
  - {name: edge, model: {name: small}, nodeName: edge0, policy: {name: CrossEntropy}}
  - {name: room, model: {name: line, kind: InferenceModel}, nodeName: edge1}
)");
  const auto serves = [&](const std::string& version) {
    patch_status(kEdgeNodes + "/edge1", "{models: [{key: default/line, exposed: '" + version +
                                            "', versions: [{version: '" + version +
                                            "', state: Ready}], serving: {version: '" + version +
                                            "', state: Ready}}]}");
  };
  ASSERT_TRUE(eventually([&] { return condition("CloudReady").starts_with("False"); }));
  serves("1");
  ASSERT_TRUE(eventually([&] { return exists(kPods + "/line"); }));
  run_pod("line", "edge1");
  ASSERT_TRUE(eventually([&] { return cloud_url() == "http://127.9.1.1:8085"; }))
      << codec::write_json(status());
  EXPECT_EQ(work().at("joint/tiers/1/model").as_string(), "parts");
  EXPECT_EQ(condition("CloudReady"), "True Serving");
  EXPECT_EQ(get(kInferenceModels)["items"].size(), 1u) << "no child loads the archive again";
  // A new version changes nothing for the first tier.
  const std::string pod = get(kPods + "/line").at("metadata/uid").as_string();
  patch(kInferenceModels + "/line", "{spec: {targetVersion: '2'}}");
  serves("2");
  ASSERT_TRUE(eventually([&] { return status().at("tiers/1/version").as_string() == "2"; }))
      << codec::write_json(status());
  EXPECT_EQ(cloud_url(), "http://127.9.1.1:8085");
  EXPECT_EQ(get(kPods + "/line").at("metadata/uid").as_string(), pod);
  // The user's InferenceModel is not the service's to delete, and its end has a reason.
  api_.remove(kInferenceModels + "/line");
  EXPECT_TRUE(eventually([&] { return condition("CloudReady") == "False ModelNotFound"; }))
      << condition("CloudReady");
}

TEST_F(JointCluster, WorkersSwitchBetweenBuiltInServersAndUserPods) {
  add_world();
  add_service();
  serve();
  const std::string own_pod = pod_uid();
  patch(kServices + "/digits", R"({spec: {
    edgeWorker: {workerSpec: {containers: [{name: worker, image: "edge-worker:1"}]}},
    cloudWorker: {workerSpec: {containers: [{name: worker, image: "cloud-worker:1"}]}}}})");
  ASSERT_TRUE(eventually([&] {
    return get(kDeployments + "/digits-cloud")
               .at("spec/template/spec/containers/0/image")
               .as_string() == "cloud-worker:1";
  })) << codec::write_json(status());
  ASSERT_TRUE(eventually([&] { return !exists(kInferenceModels + "/digits-cloud"); }));
  ASSERT_TRUE(eventually([&] { return work()["joint"].is_null(); }));
  ASSERT_TRUE(eventually([&] {
    if (get(kPods + "/digits-edge-adfa01a70198")["metadata"].contains("deletionTimestamp"))
      end_pod("digits-edge-adfa01a70198");
    return exists(kPods + "/digits-edge-adfa01a70198") &&
           get(kPods + "/digits-edge-adfa01a70198").at("spec/containers/0/image").as_string() ==
               "edge-worker:1";
  })) << codec::write_json(status())
      << codec::write_json(get(kPods + "/digits-edge-adfa01a70198"));
  EXPECT_NE(pod_uid(), own_pod);
  patch(kServices + "/digits",
        "{spec: {edgeWorker: {workerSpec: null}, cloudWorker: {workerSpec: null}}}");
  ASSERT_TRUE(eventually([&] { return exists(kInferenceModels + "/digits-cloud"); }));
  ASSERT_TRUE(eventually([&] {
    if (get(kPods + "/digits-edge-adfa01a70198")["metadata"].contains("deletionTimestamp"))
      end_pod("digits-edge-adfa01a70198");
    return get(kPods + "/digits-edge-adfa01a70198").at("spec/containers/0/name").as_string() ==
           "server";
  })) << codec::write_json(status());
  ASSERT_TRUE(eventually([&] { return !work()["joint"].is_null(); }));
}

TEST_F(JointCluster, CountsSurviveOperatorRestartAndNewNodeEpoch) {
  add_world();
  add_service();
  serve_all();
  report(
      "epoch: e1, counters: {inferences: 40, hard: 4}, degraded: {reason: BreakerOpen, message: "
      "'cloud: refused'}",
      "Open");
  ASSERT_TRUE(eventually([&] { return condition("Degraded") == "True BreakerOpen"; }))
      << codec::write_json(status());
  EXPECT_EQ(status()["inferenceNumber"].as_integer(), 40);
  stop();
  report("epoch: e2, counters: {inferences: 2, hard: 1}");
  start();
  ASSERT_TRUE(eventually([&] { return condition("Degraded") == "False AllTiersAsked"; }))
      << codec::write_json(status());
  EXPECT_EQ(status()["inferenceNumber"].as_integer(), 42);
  EXPECT_EQ(status()["hardExampleNumber"].as_integer(), 5);
}

TEST_F(JointCluster, TwoServicesOnANodeHaveTwoPorts) {
  add_world();
  add_service();
  serve();
  post(
      kServices,
      R"({apiVersion: sedna.io/v1alpha1, kind: JointInferenceService, metadata: {name: second}, spec: {
    edgeWorker: {model: {name: small}, nodeName: edge0}, cloudWorker: {model: {name: big}}}})");
  ASSERT_TRUE(eventually([&] {
    return get(kServices + "/second").at("status/endpoints/0/url").as_string() ==
           "http://127.9.1.1:18081";
  })) << codec::write_json(get(kServices + "/second"));
}

}  // namespace
}  // namespace varda::controllers::joint
