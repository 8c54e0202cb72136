// Runs as Jobs over the real API server, in memory. The test plays the Job controller, the gateway
// and the agent.

#include <atomic>

#include "api/edgeai/job_node.h"
#include "codec/digest.h"
#include "controllers/testing/control_plane.h"
#include "meta/resources.h"

namespace varda::controllers::trainingmodel {
namespace job_cluster_test {

using namespace testing;  // NOLINT: of a test, in a test

const std::string kEdgeaiModels = "/apis/edgeai.io/v1alpha1/namespaces/default/models";
const std::string kDatasets = "/apis/edgeai.io/v1alpha1/namespaces/default/datasets";
const std::string kSecrets = "/api/v1/namespaces/default/secrets";
const std::string kRun = kTrainingModels + "/digits-5";
const std::string kJob = "/apis/batch/v1/namespaces/default/jobs/digits-5";

std::string digest(char c) { return std::string(64, c); }

class JobInACluster : public ControlPlane {
 protected:
  JobInACluster() {
    stop();
    hosting::ClusterJobs jobs{.gateway_url = "https://gateway:10443", .agent_image = "varda:1"};
    jobs.make_token = [this]() -> std::optional<hosting::AgentToken> {
      if (!has_gateway_) return {};
      const std::string id = "00000000000" + std::to_string(++tokens_);
      return hosting::AgentToken{"varda-join." + id, id, digest('a')};
    };
    jobs.create_secret = [this](const Context& ctx, const Json& secret) -> Status {
      if (!may_create_) return Error(Code::kForbidden, "exceeded quota: secrets=10");
      TRY_VOID(client_.create(ctx, meta::core::secrets(), secret));
      return {};
    };
    jobs_ = std::move(jobs);
    operator_client_ = &refusable_;
    start();
  }
  ~JobInACluster() override { stop(); }  // before the members that the operator uses

  /// The operator's requests. The test may refuse the creation of EdgeNodes.
  net::Handler refusing() {
    return [this, server = api_.server().handler_as({"operator", {"system:masters"}})](
               net::Request request, net::Responder respond) {
      if (!refusing_ || request.method != "POST" || request.path() != kEdgeNodes)
        return server(std::move(request), std::move(respond));
      ++refused_;
      net::Response response;
      response.status = 403;
      response.headers.add("Content-Type", "application/json");
      response.body = R"({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, )"
                      R"("reason": "Forbidden", "message": "no EdgeNodes today"})";
      respond(std::move(response));
    };
  }
  void add_inputs() {
    post(kEdgeaiModels,
         "{apiVersion: edgeai.io/v1alpha1, kind: Model, metadata: {name: digits}, spec: {format: "
         "onnx, version: '3', modelUrl: 'http://files/3', sha256: '" +
             digest('3') + "'}}");
    post(kDatasets,
         "{apiVersion: edgeai.io/v1alpha1, kind: Dataset, metadata: {name: train}, spec: {format: "
         "idx, dataUrl: 'http://files/digits.tar.gz', sha256: '" +
             digest('d') + "', path: images.idx}}");
  }
  void add_run(const std::string& more = "") {
    post(kTrainingModels,
         "{apiVersion: ai.kubeedge.io/v1alpha1, kind: TrainingModel, metadata: {name: digits-5}, "
         "spec: {modelName: digits, deployToLayer: cloud, initialModel: {name: digits}, dataset: "
         "{name: train}, trainer: {epochs: 5}, output: {version: '5'}" +
             more + "}}");
  }
  void start_job() {
    add_inputs();
    add_run();
    ASSERT_TRUE(eventually([&] { return exists(kJob) && worker().is_object(); }))
        << api_.get(kRun).text;
  }

  std::string uid_of(const std::string& path) { return get(path).at("metadata/uid").as_string(); }
  std::string edge_node() { return kEdgeNodes + "/" + api::job_node_name(uid_of(kRun)); }
  Json worker() {
    const Json node = get(edge_node());
    return node.at("spec/workers/0");
  }
  std::string reason() {
    const Json run = get(kRun);
    for (const Json& condition : run.at("status/conditions").as_array())
      if (condition["type"].as_string() == "Running") return condition["reason"].as_string();
    return "";
  }
  std::string message() {
    const Json run = get(kRun);
    for (const Json& condition : run.at("status/conditions").as_array())
      if (condition["type"].as_string() == "Running") return condition["message"].as_string();
    return "";
  }
  std::string phase() { return get(kRun).at("status/phase").as_string(); }
  /// A pod as the Job controller makes it.
  void add_pod(const std::string& name) {
    const Json job = get(kJob);
    Json pod = job.at("spec/template");
    pod.set("apiVersion", "v1");
    pod.set("kind", "Pod");
    pod["metadata"].set("name", name);
    pod["metadata"].set("ownerReferences",
                        Json::array({Json::object({{"apiVersion", "batch/v1"},
                                                   {"kind", "Job"},
                                                   {"name", "digits-5"},
                                                   {"uid", job.at("metadata/uid")},
                                                   {"controller", true}})}));
    const auto reply = api_.post(kPods, pod);
    ASSERT_EQ(reply.status, 201) << reply.text;
  }
  void run_pod(const std::string& name) {
    add_pod(name);
    patch_status(kPods + "/" + name,
                 "{phase: Running, containerStatuses: [{name: trainer, restartCount: 0, state: "
                 "{running: {}}}, {name: varda-agent, restartCount: 0, state: {running: {}}}]}");
    ASSERT_TRUE(eventually([&] { return phase() == "Training"; })) << api_.get(kRun).text;
  }
  void report(const std::string& text) {
    const std::string key = worker()["key"].as_string();
    patch_status(edge_node(), "{workers: [{key: " + key + ", uid: " + uid_of(kRun) +
                                  ", report: " + text + "}]}");
  }
  void upload_result() {
    report("{artifacts: {model-5: {sha256: '" + digest('5') +
           "', bytes: 9, sent: 9, state: Uploaded}}, results: {final: {data: {artifact: model-5, "
           "file: model.onnx, format: onnx, metrics: {accuracy: 0.97}}}}}");
  }

  std::atomic<int> tokens_{0};
  std::atomic<bool> has_gateway_{true}, may_create_{true}, refusing_{false};
  std::atomic<int> refused_{0};
  kube::Client refusable_{net::loopback(refusing()), {}};
};

TEST_F(JobInACluster, RunGetsAnEdgeNodeATokenAndAJob) {
  start_job();
  const Json node = get(edge_node());
  EXPECT_EQ(node["metadata"]["annotations"][api::kJobAnnotation].as_string(), "default/digits-5");
  EXPECT_EQ(node["metadata"]["annotations"][api::kJobTokenAnnotation].as_string(),
            "000000000001." + digest('a'));
  const Json secret = get(kSecrets + "/digits-5-join-000000000001");
  EXPECT_EQ(codec::unbase64(secret.at("data/token").as_string()).value(),
            "varda-join.000000000001");
  EXPECT_EQ(secret.at("metadata/ownerReferences/0/uid").as_string(), uid_of(kRun));
  // The agent installs the model and the data. The trainer sees both.
  EXPECT_EQ(node.at("spec/models").size(), 2u);
  EXPECT_EQ(node.at("spec/models/0/key").as_string(), "default/digits-5.training-data");
  EXPECT_EQ(node.at("spec/models/1/key").as_string(), "default/digits-5.training-worker");
  const Json pod = get(kJob).at("spec/template/spec");
  for (const Json& volume : pod["volumes"].as_array())
    EXPECT_FALSE(volume.contains("hostPath")) << codec::write_json(volume);
  EXPECT_EQ(pod.at("initContainers/0/name").as_string(), "varda-agent-install");
  EXPECT_EQ(pod.at("containers/1/name").as_string(), "varda-agent");
  EXPECT_FALSE(pod.contains("nodeName"));
  for (const Json& mount : pod.at("containers/0/volumeMounts").as_array()) {
    EXPECT_NE(mount["name"].as_string(), "varda-join") << "the token is for the agent";
    EXPECT_NE(mount["subPath"].as_string(), "") << "the identity is for the agent";
  }
  EXPECT_EQ(get(kJob).at("spec/backoffLimit").as_integer(), 4);
}

TEST_F(JobInACluster, ResultEndsTheRunAndItsNode) {
  start_job();
  run_pod("digits-5-a");
  const std::string node = edge_node();
  upload_result();
  ASSERT_TRUE(eventually([&] { return phase() == "Complete"; })) << api_.get(kRun).text;
  EXPECT_EQ(get(kEdgeaiModels + "/digits").at("spec/version").as_string(), "5");
  EXPECT_TRUE(eventually([&] { return !exists(node); }));
  ASSERT_TRUE(becomes_idle());
  EXPECT_FALSE(get(kJob).at("spec/suspend").as_bool()) << "the agent ends the Job";
  // Another spec and a lost Job start nothing.
  ASSERT_EQ(api_.remove(kJob).status, 200);
  patch(kRun, "{spec: {trainer: {epochs: 9}}}");
  ASSERT_TRUE(becomes_idle());
  EXPECT_FALSE(exists(kJob));
  EXPECT_FALSE(exists(node));
  stop();
  EXPECT_TRUE(restart_writes_nothing());
}

TEST_F(JobInACluster, FailedJobEndsTheRunWithItsReason) {
  start_job();
  run_pod("digits-5-a");
  patch_status(
      kJob,
      "{conditions: [{type: Failed, status: 'True', reason: DeadlineExceeded, message: Job "
      "was active longer than specified deadline}]}");
  ASSERT_TRUE(eventually([&] { return phase() == "Failed"; })) << api_.get(kRun).text;
  EXPECT_EQ(reason(), "DeadlineExceeded");
}

TEST_F(JobInACluster, FailedRunSuspendsItsJob) {
  start_job();
  run_pod("digits-5-a");
  report("{results: {error: {data: {message: 'train.csv, line 17', permanent: true}}}}");
  ASSERT_TRUE(eventually([&] { return phase() == "Failed"; })) << api_.get(kRun).text;
  EXPECT_TRUE(eventually([&] { return get(kJob).at("spec/suspend").as_bool(); }));
  EXPECT_TRUE(eventually([&] { return !exists(edge_node()); }));
  ASSERT_TRUE(becomes_idle());
  stop();
  EXPECT_TRUE(restart_writes_nothing());
}

TEST_F(JobInACluster, SuspensionIsThatOfTheJob) {
  start_job();
  const std::string job = uid_of(kJob);
  patch(kRun, "{spec: {suspend: true}}");
  ASSERT_TRUE(
      eventually([&] { return get(kJob).at("spec/suspend").as_bool() && phase() == "Suspended"; }));
  EXPECT_TRUE(exists(edge_node()));
  patch(kRun, "{spec: {suspend: false}}");
  EXPECT_TRUE(eventually([&] { return !get(kJob).at("spec/suspend").as_bool(true); }));
  EXPECT_EQ(uid_of(kJob), job);
}

TEST_F(JobInACluster, ChangedSpecReplacesTheJob) {
  start_job();
  const std::string job = uid_of(kJob);
  patch(kRun, "{spec: {trainer: {epochs: 9}}}");
  EXPECT_TRUE(eventually([&] { return exists(kJob) && uid_of(kJob) != job; }))
      << api_.get(kRun).text;
  EXPECT_EQ(tokens_, 1) << "the node stays";
}

TEST_F(JobInACluster, DeletedRunLeavesNoNode) {
  start_job();
  const std::string node = edge_node();
  ASSERT_EQ(api_.remove(kRun).status, 200);
  EXPECT_TRUE(eventually([&] { return !exists(node); }));
}

TEST_F(JobInACluster, RunDeletedWithoutAnOperatorLeavesNoNode) {
  start_job();
  const std::string node = edge_node();
  ASSERT_TRUE(becomes_idle());
  stop();
  ASSERT_EQ(api_.remove(kRun).status, 200);
  start();
  EXPECT_TRUE(eventually([&] { return !exists(node); }));
}

TEST_F(JobInACluster, NodesOfOtherNamespacesStay) {
  stop();
  jobs_->namespaces = {"elsewhere"};
  start();
  const std::string node = kEdgeNodes + "/varda-job-0a1b2c3d4e5f6071";
  post(kEdgeNodes,
       "{apiVersion: edgeai.io/v1alpha1, kind: EdgeNode, metadata: {name: "
       "varda-job-0a1b2c3d4e5f6071, annotations: {edgeai.io/job: default/other, "
       "edgeai.io/job-kind: TrainingModel, edgeai.io/job-uid: u}}, spec: {}}");
  ASSERT_TRUE(becomes_idle());
  EXPECT_TRUE(exists(node));
  stop();
  jobs_->namespaces = {"default"};
  start();
  EXPECT_TRUE(eventually([&] { return !exists(node); }));
}

TEST_F(JobInACluster, SecondPodIsASecondAttempt) {
  start_job();
  run_pod("digits-5-a");
  patch_status(kPods + "/digits-5-a",
               "{phase: Failed, containerStatuses: [{name: trainer, restartCount: 0, state: "
               "{terminated: {exitCode: 137}}}]}");
  ASSERT_TRUE(eventually([&] { return get(kRun).at("status/failed").as_integer() == 1; }));
  add_pod("digits-5-b");
  ASSERT_TRUE(eventually([&] { return get(kRun).at("status/pod").as_string() == "digits-5-b"; }));
  patch_status(kPods + "/digits-5-b",
               "{phase: Running, containerStatuses: [{name: trainer, restartCount: 0, state: "
               "{running: {}}}]}");
  ASSERT_TRUE(eventually([&] { return get(kRun).at("status/attempts").as_integer() == 2; }));
  EXPECT_EQ(get(kRun).at("status/failed").as_integer(), 1);
}

TEST_F(JobInACluster, RestartOfTheAgentIsNoAttemptOfTheTrainer) {
  start_job();
  run_pod("digits-5-a");
  patch_status(kPods + "/digits-5-a",
               "{containerStatuses: [{name: trainer, restartCount: 1, state: {running: {}}}, "
               "{name: varda-agent, restartCount: 7, state: {waiting: {reason: "
               "CrashLoopBackOff}}, lastState: {terminated: {exitCode: 2}}}]}");
  ASSERT_TRUE(eventually([&] { return get(kRun).at("status/attempts").as_integer() > 1; }));
  ASSERT_TRUE(becomes_idle());
  EXPECT_EQ(get(kRun).at("status/attempts").as_integer(), 2);
  EXPECT_EQ(get(kRun).at("status/failed").as_integer(), 1);
  EXPECT_NE(phase(), "Failed") << api_.get(kRun).text;
}

TEST_F(JobInACluster, FailedTrainerThatMayNotRestartGetsAnotherPod) {
  add_inputs();
  post(kTrainingModels,
       "{apiVersion: ai.kubeedge.io/v1alpha1, kind: TrainingModel, metadata: {name: digits-5}, "
       "spec: {modelName: digits, deployToLayer: cloud, workerSpec: {restartPolicy: Never, "
       "containers: [{name: trainer, image: 'train:1'}]}}}");
  ASSERT_TRUE(eventually([&] { return exists(kJob) && worker().is_object(); }))
      << api_.get(kRun).text;
  run_pod("digits-5-a");
  patch_status(kPods + "/digits-5-a",
               "{containerStatuses: [{name: trainer, restartCount: 0, state: {terminated: "
               "{exitCode: 1}}}, {name: varda-agent, restartCount: 0, state: {running: {}}}]}");
  // The first replacement waits for 5 s.
  EXPECT_TRUE(eventually([&] { return !exists(kPods + "/digits-5-a"); })) << api_.get(kRun).text;
  EXPECT_EQ(get(kRun).at("status/failed").as_integer(), 1);
}

TEST_F(JobInACluster, TrainerWithoutAResultFailsTheRun) {
  start_job();
  run_pod("digits-5-a");
  patch_status(kPods + "/digits-5-a",
               "{containerStatuses: [{name: trainer, restartCount: 0, state: {terminated: "
               "{exitCode: 0}}}, {name: varda-agent, restartCount: 0, state: {running: {}}}]}");
  EXPECT_TRUE(eventually([&] { return reason() == "AwaitingResult"; })) << api_.get(kRun).text;
}

TEST_F(JobInACluster, MissingGatewayIsAReasonUntilItPublishesItsAuthority) {
  has_gateway_ = false;
  add_inputs();
  add_run();
  ASSERT_TRUE(eventually([&] { return reason() == "GatewayMissing"; })) << api_.get(kRun).text;
  EXPECT_FALSE(exists(kJob));
  has_gateway_ = true;
  patch(kRun, "{metadata: {labels: {wake: up}}}");
  EXPECT_TRUE(eventually([&] { return exists(kJob); })) << api_.get(kRun).text;
}

TEST_F(JobInACluster, ForbiddenSecretIsAReasonWithTheRemedy) {
  may_create_ = false;
  add_inputs();
  add_run();
  ASSERT_TRUE(eventually([&] { return reason() == "TokenForbidden"; })) << api_.get(kRun).text;
  EXPECT_NE(message().find("exceeded quota"), std::string::npos) << message();
  EXPECT_NE(message().find("create rolebinding"), std::string::npos) << message();
  EXPECT_FALSE(exists(edge_node()));
  may_create_ = true;
  patch(kRun, "{metadata: {labels: {wake: up}}}");
  EXPECT_TRUE(eventually([&] { return exists(kJob); })) << api_.get(kRun).text;
}

TEST_F(JobInACluster, RefusedEdgeNodeIsAReasonAndLeavesOneSecret) {
  add_inputs();
  refusing_ = true;
  add_run();
  ASSERT_TRUE(eventually([&] { return reason() == "EdgeNodeForbidden"; })) << api_.get(kRun).text;
  EXPECT_NE(message().find("no EdgeNodes today"), std::string::npos) << message();
  EXPECT_EQ(message().find("rolebinding"), std::string::npos) << message();
  for (int i = 0; i < 3; ++i) {
    const int before = refused_;
    patch(kRun, "{metadata: {labels: {wake: 'w" + std::to_string(i) + "'}}}");
    ASSERT_TRUE(eventually([&] { return refused_ > before; }));
  }
  EXPECT_EQ(tokens_, 1);
  EXPECT_EQ(get(kSecrets)["items"].size(), 1u) << api_.get(kSecrets).text;
  refusing_ = false;
  patch(kRun, "{metadata: {labels: {wake: up}}}");
  ASSERT_TRUE(eventually([&] { return exists(kJob); })) << api_.get(kRun).text;
  EXPECT_EQ(get(edge_node())["metadata"]["annotations"][api::kJobTokenAnnotation].as_string(),
            "000000000001." + digest('a'));
}

TEST_F(JobInACluster, NodeNameEndsTheJobBeforeTheNewTrainerStarts) {
  add_node("cloud0", "{edgeai.io/layer: cloud}");
  add_agent("cloud0");
  post(kTrainingModels,
       "{apiVersion: ai.kubeedge.io/v1alpha1, kind: TrainingModel, metadata: {name: digits-5}, "
       "spec: {modelName: digits, deployToLayer: cloud, image: 'train:1'}}");
  ASSERT_TRUE(eventually([&] { return exists(kJob) && worker().is_object(); }))
      << api_.get(kRun).text;
  run_pod("digits-5-a");
  patch(kPods + "/digits-5-a", "{metadata: {finalizers: [test.example/hold]}}");
  ASSERT_TRUE(becomes_idle());
  const std::string node = edge_node();
  patch(kRun, "{spec: {nodeName: cloud0}}");
  EXPECT_TRUE(eventually([&] { return !exists(node) && !exists(kJob); })) << api_.get(node).text;
  ASSERT_TRUE(eventually([&] { return reason() == "JobReplaced"; })) << api_.get(kRun).text;
  ASSERT_TRUE(becomes_idle());
  EXPECT_EQ(get(kPods)["items"].size(), 1u) << "the former trainer still runs";
  patch(kPods + "/digits-5-a", "{metadata: {finalizers: null}}");
  EXPECT_TRUE(eventually([&] {
    const Json pods = get(kPods);
    return pods["items"].size() == 1 &&
           pods.at("items/0/metadata/name").as_string() != "digits-5-a";
  })) << api_.get(kPods).text;
}

TEST_F(JobInACluster, DatasetOfANodeIsAReason) {
  add_inputs();
  add_run();
  ASSERT_TRUE(eventually([&] { return exists(kJob); }));
  ASSERT_EQ(api_.remove(kRun).status, 200);
  patch(kDatasets + "/train", "{spec: {dataUrl: /data/digits, nodeName: edge0}}");
  post(kTrainingModels,
       "{apiVersion: ai.kubeedge.io/v1alpha1, kind: TrainingModel, metadata: {name: digits-6}, "
       "spec: {modelName: digits, deployToLayer: cloud, initialModel: {name: digits}, dataset: "
       "{name: train}, trainer: {epochs: 5}}}");
  EXPECT_TRUE(eventually([&] {
    return api_.get(kTrainingModels + "/digits-6").text.find("DatasetElsewhere") !=
           std::string::npos;
  }));
}

TEST_F(JobInACluster, VolumeIsMountedReadOnlyForTheTrainer) {
  add_inputs();
  patch(kDatasets + "/train", "{spec: {dataUrl: 'pvc://digits/2026', sha256: null}}");
  add_run();
  ASSERT_TRUE(eventually([&] { return exists(kJob); })) << api_.get(kRun).text;
  const Json pod = get(kJob).at("spec/template/spec");
  const std::string text = codec::write_json(pod);
  EXPECT_NE(text.find(R"("claimName":"digits")"), std::string::npos) << text;
  EXPECT_NE(text.find("/var/run/varda/claims/digits/2026/images.idx"), std::string::npos) << text;
  EXPECT_EQ(codec::write_json(pod.at("containers/1")).find("claims"), std::string::npos);
}

TEST_F(JobInACluster, JobOfAnotherOwnerStaysAndIsAReason) {
  post("/apis/batch/v1/namespaces/default/jobs",
       "{apiVersion: batch/v1, kind: Job, metadata: {name: digits-5}, spec: {template: {spec: "
       "{restartPolicy: Never, containers: [{name: a, image: b}]}}}}");
  const std::string job = uid_of(kJob);
  add_inputs();
  add_run();
  ASSERT_TRUE(eventually([&] { return reason() == "NameInUse"; })) << api_.get(kRun).text;
  EXPECT_EQ(uid_of(kJob), job);
}

class OneMachine : public ControlPlane {};

TEST_F(OneMachine, RunWithoutANodeIsOnTheNodeOfTheCloudLayer) {
  add_node("cloud", "{edgeai.io/layer: cloud}");
  add_agent("cloud");
  post(kTrainingModels,
       "{apiVersion: ai.kubeedge.io/v1alpha1, kind: TrainingModel, metadata: {name: digits-5}, "
       "spec: {modelName: fresh, deployToLayer: cloud, image: 'train:1'}}");
  EXPECT_TRUE(eventually([&] {
    const Json pods = get(kPods);
    return pods["items"].size() == 1 && get(kRun).at("status/node").as_string() == "cloud";
  })) << api_.get(kRun).text;
  EXPECT_FALSE(exists(kJob));
}

}  // namespace job_cluster_test
}  // namespace varda::controllers::trainingmodel
