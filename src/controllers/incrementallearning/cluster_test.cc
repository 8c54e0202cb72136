// Incremental jobs over the real API server, in memory, with the controllers of all kinds. The test
// plays the nodes and writes their reports.

#include <algorithm>
#include <set>

#include "base/metric_collector.h"
#include "controllers/testing/control_plane.h"

namespace varda::controllers::incrementallearning {
namespace incremental_cluster_test {

using namespace testing;  // NOLINT: of a test, in a test

const std::string kEdgeaiModels = "/apis/edgeai.io/v1alpha1/namespaces/default/models";
const std::string kEdgeaiDatasets = "/apis/edgeai.io/v1alpha1/namespaces/default/datasets";
const std::string kJobs = "/apis/sedna.io/v1alpha1/namespaces/default/incrementallearningjobs";
const std::string kJob = kJobs + "/digits";
const std::string kServer = kInferenceModels + "/digits";

std::string digest(char c) { return std::string(64, c); }

class IncrementalInACluster : public ControlPlane {
 protected:
  void add_machine(const std::string& name) {
    add_node(name, "{node-role.kubernetes.io/edge: ''}");
    add_agent(name);
    patch_status(kEdgeNodes + "/" + name, "{observedGeneration: 1000, datasetRoots: [/data]}");
  }
  void add_model() {
    post(kEdgeaiModels,
         "{apiVersion: edgeai.io/v1alpha1, kind: Model, metadata: {name: digits-0}, spec: {format: "
         "onnx, version: '1', modelUrl: 'http://registry/1.tar', sha256: " +
             digest('a') + "}}");
  }
  void add_dataset() {
    post(kEdgeaiDatasets,
         "{apiVersion: edgeai.io/v1alpha1, kind: Dataset, metadata: {name: fresh}, spec: {format: "
         "imagefolder, dataUrl: /data/fresh, nodeName: edge0}}");
  }
  void count(int samples) {
    const std::string path = kEdgeaiDatasets + "/fresh";
    const Json dataset = get(path);
    const std::string uid = dataset.at("metadata/uid").as_string();
    patch_status(kEdgeNodes + "/edge0",
                 "{datasets: [{key: datasets.edgeai.io/default/fresh, uid: " + uid +
                     ", state: Counted, samples: " + std::to_string(samples) +
                     ", bytes: 9, fingerprint: f" + std::to_string(samples) + "}]}");
  }
  void add_job(const std::string& deploy = "", const std::string& train = "",
               const std::string& more = "") {
    post(kJobs,
         "{apiVersion: sedna.io/v1alpha1, kind: IncrementalLearningJob, metadata: {name: digits}, "
         "spec: {nodeName: edge0, dataset: {name: fresh}, initialModel: {name: digits-0}, "
         "trainSpec: {trigger: {samples: 10}, retry: {backoffSeconds: 0}" +
             train +
             "}, evalSpec: {gate: {minimumGain: 0.01, significance: 1}}, deploySpec: "
             "{model: {name: digits}" +
             deploy + "}" + more + "}}");
  }
  Json job() { return get(kJob); }
  std::string machine(const std::string& member) {
    return job().at("status/" + member).as_string();
  }
  std::string stage() { return machine("stage") + " " + machine("state"); }
  std::int64_t round() { return job().at("status/round").as_integer(); }
  std::string uid_of(const std::string& path) { return get(path).at("metadata/uid").as_string(); }
  Json condition(const std::string& type) {
    const Json live = job();
    for (const Json& one : live.at("status/conditions").as_array())
      if (one["type"].as_string() == type) return one;
    return {};
  }
  std::string target() { return get(kServer).at("spec/targetVersion").as_string(); }
  /// The model of the trainer, as the node reports it.
  void install(const std::string& version, char sha) {
    ASSERT_TRUE(eventually([&] {
      const Json node = get(kEdgeNodes + "/edge0");
      for (const Json& model : node.at("spec/models").as_array()) {
        if (model["key"].as_string() == "default/digits.incremental-trainer")
          return model["target"].as_string() == version;
      }
      return false;
    })) << api_.get(kEdgeNodes + "/edge0").text
        << api_.get(kJob).text;
    report_model("default/digits.incremental-trainer",
                 "{key: default/digits.incremental-trainer, exposed: '" + version +
                     "', versions: [{version: '" + version +
                     "', state: Ready, sha256: " + digest(sha) + "}]}");
  }
  void serve(const std::string& version) {
    ASSERT_TRUE(eventually([&] { return target() == version; }))
        << api_.get(kServer).text << api_.get(kJob).text;
    // The InferenceModel's own controller would write this from the node's report.
    served_ = version;
    report_serving();
  }
  void report_serving() {
    report_model("default/digits", "{key: default/digits, exposed: '" + served_ +
                                       "', versions: [{version: '" + served_ +
                                       "', state: Ready}], serving: {version: '" + served_ +
                                       "', state: Ready}}");
  }
  /// Replaces the node's report on one model. A merge patch of the list alone would drop the
  /// others.
  void report_model(const std::string& key, const std::string& report) {
    const Json node = get(kEdgeNodes + "/edge0");
    Json models = Json::array();
    for (const Json& one : node.at("status/models").as_array())
      if (one["key"].as_string() != key) models.push_back(one);
    models.push_back(yaml(report));
    const auto reply =
        api_.merge_patch(kEdgeNodes + "/edge0/status",
                         Json::object({{"status", Json::object({{"models", std::move(models)}})}}));
    ASSERT_EQ(reply.status, 200) << reply.text;
  }
  std::string trainer() {
    const Json pods = get(kPods);
    for (const Json& pod : pods["items"].as_array()) {
      const std::string& name = pod.at("metadata/name").as_string();
      if (name.starts_with("digits-incremental-trainer-")) return name;
    }
    return "";
  }
  std::string attempt_of(const std::string& pod) {
    return get(kPods + "/" + pod).at("metadata/annotations/edgeai.io~1attempt").as_string();
  }
  void run_server() {
    std::string name;
    ASSERT_TRUE(eventually([&] {
      const Json pods = get(kPods);
      for (const Json& pod : pods["items"].as_array()) {
        const Json& owner = pod.at("metadata/ownerReferences/0");
        if (owner["kind"].as_string() == "InferenceModel")
          name = pod.at("metadata/name").as_string();
      }
      return !name.empty();
    })) << api_.get(kServer).text;
    patch_status(kPods + "/" + name,
                 "{phase: Running, podIP: 10.0.0.9, conditions: [{type: Ready, status: 'True'}], "
                 "containerStatuses: [{name: serve, ready: true, restartCount: 0, state: "
                 "{running: {}}}]}");
  }
  void start_all() {
    add_machine("edge0");
    add_model();
    add_dataset();
    add_job();
    serve("1");  // the pod follows, once its node has the model
    run_server();
    ASSERT_TRUE(eventually([&] { return stage() == "Train Waiting"; })) << api_.get(kJob).text;
  }
  /// Brings enough samples, and starts the pod of the round.
  void begin_round(int samples, const std::string& version, char sha) {
    install(version, sha);
    report_serving();
    count(samples);
    ASSERT_TRUE(eventually([&] { return !trainer().empty(); })) << api_.get(kJob).text;
    patch_status(kPods + "/" + trainer(),
                 "{phase: Running, containerStatuses: [{name: trainer, ready: true, restartCount: "
                 "0, state: {running: {}}}]}");
    ASSERT_TRUE(eventually([&] { return stage() == "Train Running"; })) << api_.get(kJob).text;
  }
  void report_result(int round, int attempt, int base_right, int candidate_right, char sha) {
    const std::string slice =
        "{name: frozen, samples: 100, baseRight: " + std::to_string(base_right) +
        ", candidateRight: " + std::to_string(candidate_right) +
        ", onlyBase: " + std::to_string(std::max(0, base_right - candidate_right)) +
        ", onlyCandidate: " + std::to_string(std::max(0, candidate_right - base_right)) + "}";
    patch_status(
        kEdgeNodes + "/edge0",
        "{workers: [{key: default/" + trainer_name_ + ", uid: " + uid_of(kJob) +
            ", report: {artifacts: {model: {sha256: '" + digest(sha) +
            "', bytes: 9, sent: 9, state: Uploaded}}, results: {final: {data: {round: " +
            std::to_string(round) + ", attempt: " + std::to_string(attempt) +
            ", artifact: model, file: model.onnx, format: onnx, metrics: {accuracy: 0.97}, "
            "comparison: {round: " +
            std::to_string(round) + ", selected: {train: 8, evaluate: 2}, slices: [" + slice +
            "], metrics: {base: {accuracy: 0.8}, candidate: {accuracy: 0.97}}}}}}}}]}");
  }
  void remember_trainer() { trainer_name_ = trainer(); }
  /// The first round: a better version, which serves.
  void accept_round() {
    begin_round(12, "1", 'a');
    remember_trainer();
    report_result(1, 1, 80, 97, 'b');
    ASSERT_TRUE(eventually([&] { return target() != "1"; })) << api_.get(kJob).text;
    const std::string version = target();
    serve(version);
    ASSERT_TRUE(eventually([&] { return machine("version") == version; })) << api_.get(kJob).text;
    ASSERT_TRUE(eventually([&] {
      return get(kEdgeaiModels + "/digits").at("spec/sha256").as_string() == digest('b');
    })) << api_.get(kJob).text;
  }
  /// Back to the initial version.
  void roll_back() {
    patch(kJob, "{metadata: {annotations: {edgeai.io/rollback: '17'}}}");
    ASSERT_TRUE(eventually([&] { return target() == "1"; })) << api_.get(kJob).text;
    serve("1");
  }
  /// An InferenceModel of a user on edge0.
  void post_model(const std::string& name, int port) {
    post(kInferenceModels,
         "{apiVersion: ai.kubeedge.io/v1alpha1, kind: InferenceModel, metadata: {name: " + name +
             "}, spec: {modelName: " + name +
             ", deployToLayer: edge, nodeName: edge0, frameworkType: onnx, targetVersion: '1', "
             "servingPort: " +
             std::to_string(port) +
             ", manifest: [{version: '1', downloadURL: 'http://registry/other.tar', sha256sum: " +
             digest('e') + "}]}}");
  }

  std::string served_, trainer_name_;
};

TEST_F(IncrementalInACluster, ServiceStartsWithTheInitialModel) {
  start_all();
  EXPECT_TRUE(eventually([&] { return condition("Ready")["status"].as_string() == "True"; }))
      << api_.get(kJob).text;
  EXPECT_EQ(machine("version"), "1");
  EXPECT_EQ(round(), 0);
  EXPECT_FALSE(exists(kEdgeaiModels + "/digits")) << "the first version is the user's Model";
}

TEST_F(IncrementalInACluster, BetterVersionServesAndBecomesVersionOfTheModel) {
  start_all();
  begin_round(12, "1", 'a');
  remember_trainer();
  EXPECT_EQ(get(kPods + "/" + trainer_name_).at("spec/restartPolicy").as_string(), "Never");
  report_result(1, 1, 80, 97, 'b');
  ASSERT_TRUE(eventually([&] { return target() != "1"; })) << api_.get(kJob).text;
  const std::string version = target();
  serve(version);
  ASSERT_TRUE(eventually([&] { return machine("version") == version; })) << api_.get(kJob).text;
  EXPECT_EQ(condition("Evaluated")["status"].as_string(), "True");
  EXPECT_EQ(condition("Deploy")["reason"].as_string(), "Completed") << "of the round that ended";
  const Json last = job().at("status/rounds/0");
  EXPECT_EQ(last["outcome"].as_string(), "Accepted");
  EXPECT_EQ(last["version"].as_string(), version);
  ASSERT_TRUE(eventually([&] {
    return get(kEdgeaiModels + "/digits").at("spec/sha256").as_string() == digest('b');
  })) << api_.get(kJob).text;
  const Json model = get(kEdgeaiModels + "/digits");
  EXPECT_EQ(model.at("spec/version").as_string(), version);
  EXPECT_EQ(model.at("spec/sourceJob").as_string(), "IncrementalLearningJob/digits");
  EXPECT_EQ(model.at("spec/metadata/baseVersion").as_string(), "1");
  EXPECT_TRUE(eventually([&] { return trainer().empty(); })) << "the pod of the round goes";
  const Json node = get(kEdgeNodes + "/edge0");
  EXPECT_EQ(node.at("spec/workers/0/key").as_string(), "default/" + trainer_name_)
      << "the directory of the trainer stays";
  EXPECT_TRUE(eventually([&] { return job().at("status/samples/new").as_integer() == 2; }))
      << api_.get(kJob).text;
}

TEST_F(IncrementalInACluster, WorseVersionNeverServes) {
  start_all();
  begin_round(12, "1", 'a');
  remember_trainer();
  report_result(1, 1, 80, 60, 'b');
  ASSERT_TRUE(eventually([&] { return !job().at("status/rounds").as_array().empty(); }))
      << api_.get(kJob).text;
  EXPECT_EQ(job().at("status/rounds/0/outcome").as_string(), "Refused");
  EXPECT_EQ(condition("Evaluated")["status"].as_string(), "False");
  EXPECT_EQ(condition("Eval")["reason"].as_string(), "Completed");
  EXPECT_EQ(condition("Deploy")["reason"].as_string(), "Failed");
  EXPECT_EQ(target(), "1");
  EXPECT_FALSE(exists(kEdgeaiModels + "/digits"));
}

TEST_F(IncrementalInACluster, FailedPodIsAnotherAttempt) {
  start_all();
  begin_round(12, "1", 'a');
  remember_trainer();
  const std::string first = uid_of(kPods + "/" + trainer_name_);
  patch_status(kPods + "/" + trainer_name_,
               "{phase: Failed, containerStatuses: [{name: trainer, ready: false, restartCount: 0, "
               "state: {terminated: {exitCode: 137}}}]}");
  ASSERT_TRUE(eventually([&] {
    return exists(kPods + "/" + trainer_name_) && uid_of(kPods + "/" + trainer_name_) != first;
  })) << api_.get(kJob).text;
  report_result(1, 1, 80, 97, 'c');
  EXPECT_TRUE(becomes_idle());
  EXPECT_EQ(target(), "1") << "the late report of the first attempt changes nothing";
  report_result(1, 2, 80, 97, 'b');
  EXPECT_TRUE(eventually([&] { return target() != "1"; })) << api_.get(kJob).text;
}

TEST_F(IncrementalInACluster, RequestOfThePersonStartsARoundOnce) {
  start_all();
  install("1", 'a');
  report_serving();
  count(3);
  ASSERT_TRUE(eventually([&] { return job().at("status/samples/new").as_integer() == 3; }));
  EXPECT_TRUE(trainer().empty());
  patch(kJob, "{metadata: {annotations: {edgeai.io/train: '17'}}}");
  ASSERT_TRUE(eventually([&] { return !trainer().empty(); })) << api_.get(kJob).text;
  remember_trainer();
  report_result(1, 1, 80, 60, 'b');
  ASSERT_TRUE(eventually([&] { return trainer().empty(); })) << api_.get(kJob).text;
  EXPECT_TRUE(becomes_idle());
  EXPECT_EQ(round(), 1) << "a request counts once";
}

TEST_F(IncrementalInACluster, RollbackBringsBackTheVersionBefore) {
  start_all();
  accept_round();
  ASSERT_TRUE(eventually(
      [&] { return get(kEdgeaiModels + "/digits").at("spec/sha256").as_string() == digest('b'); }));
  patch(kJob, "{metadata: {annotations: {edgeai.io/rollback: '17'}}}");
  ASSERT_TRUE(eventually([&] { return target() == "1"; })) << api_.get(kJob).text;
  serve("1");
  EXPECT_TRUE(eventually([&] {
    return get(kEdgeaiModels + "/digits").at("spec/sha256").as_string() == digest('a');
  })) << api_.get(kJob).text;
}

TEST_F(IncrementalInACluster, RollbackToTheInitialVersionRestoresItsSizeAndItsMetrics) {
  add_machine("edge0");
  add_model();
  patch(kEdgeaiModels + "/digits-0", "{spec: {size: 4711}}");
  patch_status(kEdgeaiModels + "/digits-0", "{metrics: [{key: accuracy, value: '0.8'}]}");
  add_dataset();
  add_job();
  serve("1");
  run_server();
  accept_round();
  const std::string version = target();
  ASSERT_TRUE(eventually([&] {
    return get(kEdgeaiModels + "/digits").at("status/metrics/0/value").as_string() == "0.97";
  })) << api_.get(kEdgeaiModels + "/digits").text;
  roll_back();
  EXPECT_TRUE(eventually([&] {
    const Json model = get(kEdgeaiModels + "/digits");
    return model.at("spec/sha256").as_string() == digest('a') &&
           model.at("status/metrics/0/value").as_string() == "0.8";
  })) << api_.get(kEdgeaiModels + "/digits").text;
  EXPECT_EQ(get(kEdgeaiModels + "/digits").at("spec/size").as_integer(), 4711);
  EXPECT_EQ(condition("Evaluated")["reason"].as_string(), "RolledBack");
  EXPECT_TRUE(condition("Evaluated")["message"].as_string().starts_with(
      "version " + version + " of round 1 left the service: ManualRollback: "))
      << condition("Evaluated")["message"].as_string();
  EXPECT_EQ(job().at("status/summary/gain").as_string(), "") << "the initial version has no gain";
}

TEST_F(IncrementalInACluster, ModelOfUnknownSizeAndMetricsHasNoneAfterARollback) {
  start_all();
  accept_round();
  EXPECT_EQ(job().at("status/summary/gain").as_string(), "+0.17");
  ASSERT_TRUE(eventually(
      [&] { return !get(kEdgeaiModels + "/digits").at("status/metrics").as_array().empty(); }));
  EXPECT_EQ(get(kEdgeaiModels + "/digits").at("spec/size").as_integer(), 9);
  roll_back();
  EXPECT_TRUE(eventually([&] {
    const Json model = get(kEdgeaiModels + "/digits");
    return model.at("spec/sha256").as_string() == digest('a') &&
           model.at("status/metrics").as_array().empty();
  })) << api_.get(kEdgeaiModels + "/digits").text;
  EXPECT_FALSE(get(kEdgeaiModels + "/digits").at("spec").contains("size"));
  ASSERT_TRUE(becomes_idle());
  stop();
  EXPECT_TRUE(restart_writes_nothing());
}

TEST_F(IncrementalInACluster, PortInUseHoldsUpTheTrainingUntilThePortIsFree) {
  add_machine("edge0");
  add_model();
  add_dataset();
  post_model("blocker", 8080);
  add_job();
  ASSERT_TRUE(eventually([&] { return condition("Ready")["reason"].as_string() == "PortInUse"; }))
      << api_.get(kJob).text;
  install("1", 'a');
  count(12);
  ASSERT_TRUE(eventually([&] { return stage() == "Train Ready"; })) << api_.get(kJob).text;
  EXPECT_TRUE(becomes_idle());
  EXPECT_EQ(trainer(), "");
  EXPECT_TRUE(condition("Train")["message"].as_string().starts_with(
      "no version can be deployed: edge0: port 8080 of node edge0 belongs to"))
      << condition("Train")["message"].as_string();
  ASSERT_EQ(api_.remove(kInferenceModels + "/blocker").status, 200);
  EXPECT_TRUE(eventually([&] { return !trainer().empty(); })) << api_.get(kJob).text;
}

TEST_F(IncrementalInACluster, NameInUseHoldsUpTheTrainingUntilTheNameIsFree) {
  add_machine("edge0");
  add_model();
  add_dataset();
  post_model("digits", 9090);
  count(12);
  add_job();
  ASSERT_TRUE(eventually([&] { return condition("Ready")["reason"].as_string() == "NameInUse"; }))
      << api_.get(kJob).text;
  install("1", 'a');
  ASSERT_TRUE(eventually([&] {
    return condition("Train")["message"].as_string().find("digits") != std::string::npos;
  })) << api_.get(kJob).text;
  EXPECT_EQ(trainer(), "");
  ASSERT_EQ(api_.remove(kServer).status, 200);
  EXPECT_TRUE(eventually([&] { return !trainer().empty(); })) << api_.get(kJob).text;
}

TEST_F(IncrementalInACluster, RequestWithoutNewSamplesIsACondition) {
  start_all();
  install("1", 'a');
  report_serving();
  count(0);
  ASSERT_TRUE(eventually([&] { return job().at("status/samples").contains("total"); }));
  patch(kJob, "{metadata: {annotations: {edgeai.io/train: '17'}}}");
  ASSERT_TRUE(eventually([&] {
    return condition("Train")["reason"].as_string() == "NothingToTrain";
  })) << api_.get(kJob).text;
  EXPECT_EQ(condition("Train")["message"].as_string(),
            "nothing to train on: the Dataset has no samples");
  EXPECT_EQ(round(), 0);
  count(3);
  EXPECT_TRUE(eventually([&] { return condition("Train")["reason"].as_string() == "Waiting"; }))
      << api_.get(kJob).text;
  EXPECT_EQ(round(), 0) << "the request is answered";
}

TEST_F(IncrementalInACluster, RestartedOperatorContinuesTheRound) {
  start_all();
  begin_round(12, "1", 'a');
  remember_trainer();
  const std::string pod = uid_of(kPods + "/" + trainer_name_);
  stop();
  report_result(1, 1, 80, 97, 'b');
  start();
  ASSERT_TRUE(eventually([&] { return target() != "1"; })) << api_.get(kJob).text;
  EXPECT_EQ(job().at("status/round").as_integer(), 1);
}

TEST_F(IncrementalInACluster, MissingModelForLabelsIsACondition) {
  add_machine("edge0");
  add_model();
  add_dataset();
  add_job(", samples: {countMax: 10}, pseudoLabels: {model: {name: big}}");
  serve("1");
  run_server();
  ASSERT_TRUE(eventually([&] {
    return get(kEdgeNodes + "/edge0").at("spec/samples/0/path").as_string() == "/data/fresh";
  })) << api_.get(kEdgeNodes + "/edge0").text;
  patch_status(kEdgeNodes + "/edge0", "{samples: [{key: default/digits, uid: " + uid_of(kJob) +
                                          ", state: Ready, pending: 3}]}");
  EXPECT_TRUE(eventually([&] {
    return condition("Labels")["reason"].as_string() == "ModelNotFound";
  })) << api_.get(kJob).text;
  post(kInferenceModels,
       "{apiVersion: ai.kubeedge.io/v1alpha1, kind: InferenceModel, metadata: {name: big}, spec: "
       "{modelName: big, deployToLayer: cloud, frameworkType: onnx, targetVersion: '1', manifest: "
       "[{version: '1', downloadURL: 'http://registry/big.tar', sha256sum: " +
           digest('d') + "}]}}");
  EXPECT_TRUE(eventually([&] {
    return condition("Labels")["reason"].as_string() != "ModelNotFound";
  })) << api_.get(kJob).text;
}

TEST_F(IncrementalInACluster, SamplesAwayFromTheDatasetAreACondition) {
  add_machine("edge0");
  add_machine("edge1");
  add_model();
  add_dataset();
  add_job(", samples: {countMax: 10}, nodeNames: [edge0, edge1]");
  ASSERT_TRUE(eventually([&] { return exists(kInferenceModels + "/digits-edge1"); }))
      << api_.get(kJob).text;
  patch_status(kEdgeNodes + "/edge1", "{samples: [{key: default/digits-edge1, uid: " +
                                          uid_of(kJob) + ", state: Ready, pending: 3}]}");
  EXPECT_TRUE(eventually([&] {
    return condition("Labels")["reason"].as_string() == "DatasetElsewhere";
  })) << api_.get(kJob).text;
}

TEST_F(IncrementalInACluster, DeletedJobLeavesNothing) {
  start_all();
  begin_round(12, "1", 'a');
  ASSERT_EQ(api_.remove(kJob).status, 200);
  EXPECT_TRUE(eventually([&] {
    return get(kEdgeNodes + "/edge0").at("spec/workers").as_array().empty() && !exists(kServer);
  })) << api_.get(kEdgeNodes + "/edge0").text;
}

TEST_F(IncrementalInACluster, WrongSpecIsRefusedWithItsMember) {
  const auto reply = api_.post(
      kJobs,
      yaml("{apiVersion: sedna.io/v1alpha1, kind: IncrementalLearningJob, metadata: {name: bad}, "
           "spec: {dataset: {name: d}, initialModel: {name: m}, trainSpec: {trigger: {timer: "
           "{start: '2 am', end: '04:00'}}}, evalSpec: {}, deploySpec: {model: {name: m}}}}"));
  EXPECT_EQ(reply.status, 422);
  EXPECT_NE(reply.text.find("trainSpec.trigger.timer"), std::string::npos) << reply.text;
}

TEST_F(IncrementalInACluster, MetricsFollowTheStatusUntilDeletion) {
  start_all();
  const auto text = [&] { return metrics::text_of(controllers_->metrics()); };
  const std::string job = "{namespace=\"default\",name=\"digits\"";
  EXPECT_TRUE(eventually([&] {
    return text().find("varda_incremental_job_ready" + job + "} 1\n") != std::string::npos;
  })) << text();
  ASSERT_EQ(api_.remove(kJob).status, 200);
  EXPECT_TRUE(eventually([&] { return text().find("varda_incremental") == std::string::npos; }));
}

TEST_F(IncrementalInACluster, OneOfTwoJobsWritesTheModel) {
  start_all();
  post(kJobs,
       "{apiVersion: sedna.io/v1alpha1, kind: IncrementalLearningJob, metadata: {name: second}, "
       "spec: {nodeName: edge0, dataset: {name: fresh}, initialModel: {name: digits-0}, "
       "trainSpec: {}, evalSpec: {}, deploySpec: {model: {name: digits}, servingPort: 8081}}}");
  const auto waits = [&](const std::string& name) {
    const Json live = get(kJobs + "/" + name);
    for (const Json& one : live.at("status/conditions").as_array())
      if (one["type"].as_string() == "Ready") return one["reason"].as_string() == "ModelInUse";
    return false;
  };
  // Both were created in one second, so their uids decide.
  EXPECT_TRUE(eventually([&] { return waits("digits") != waits("second"); }));
  ASSERT_TRUE(becomes_idle());
  ASSERT_NE(waits("digits"), waits("second"));
  const bool second = waits("second");
  ASSERT_EQ(api_.remove(second ? kJob : kJobs + "/second").status, 200);
  EXPECT_TRUE(eventually([&] { return !waits(second ? "second" : "digits"); }));
}

TEST_F(IncrementalInACluster, IdleJobCausesNoWrites) {
  start_all();
  ASSERT_TRUE(becomes_idle());
  stop();
  EXPECT_TRUE(restart_writes_nothing());
}

}  // namespace incremental_cluster_test
}  // namespace varda::controllers::incrementallearning
