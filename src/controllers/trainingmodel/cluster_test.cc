// Runs over the real API server, in memory, with the controllers of all kinds. The test plays the
// node and writes its reports.

#include <algorithm>

#include "controllers/testing/control_plane.h"

namespace varda::controllers::trainingmodel {
namespace training_cluster_test {

using namespace testing;  // NOLINT: of a test, in a test

const std::string kEdgeaiModels = "/apis/edgeai.io/v1alpha1/namespaces/default/models";
const std::string kDatasets = "/apis/edgeai.io/v1alpha1/namespaces/default/datasets";
const std::string kRun = kTrainingModels + "/digits-5";
const std::string kPod = kPods + "/digits-5-training-worker-adfa01a70198";
const std::string kWorker = "default/digits-5-training-worker-adfa01a70198";

std::string digest(char c) { return std::string(64, c); }

class TrainingInACluster : public ControlPlane {
 protected:
  void add_edge0() {
    add_node("edge0", "{}");
    add_agent("edge0");
    patch_status(kEdgeNodes + "/edge0",
                 "{observedGeneration: 1000, fileRoots: [/data], models: [{key: "
                 "default/digits-5.training-worker, exposed: '3', versions: [{version: '3', state: "
                 "Ready, sha256: '" +
                     digest('3') + "'}]}]}");
  }
  void add_model() {
    post(kEdgeaiModels,
         "{apiVersion: edgeai.io/v1alpha1, kind: Model, metadata: {name: digits}, spec: {format: "
         "onnx, version: '3', modelUrl: 'http://files/3', sha256: '" +
             digest('3') + "'}}");
  }
  // Nodes cannot count this format, so the test needs no report of a count.
  void add_dataset() {
    post(kDatasets,
         "{apiVersion: edgeai.io/v1alpha1, kind: Dataset, metadata: {name: train}, spec: {format: "
         "npy, dataUrl: /data/digits, nodeName: edge0}}");
  }
  void add_run(const std::string& more = "") {
    post(kTrainingModels,
         "{apiVersion: ai.kubeedge.io/v1alpha1, kind: TrainingModel, metadata: {name: digits-5}, "
         "spec: {modelName: digits, nodeName: edge0, initialModel: {name: digits}, dataset: {name: "
         "train}, trainer: {epochs: 5}, output: {version: '5'}" +
             more + "}}");
  }
  void add_all() {
    add_edge0();
    add_model();
    add_dataset();
    add_run();
  }

  std::string phase() { return get(kRun).at("status/phase").as_string(); }
  std::string uid_of(const std::string& path) { return get(path).at("metadata/uid").as_string(); }
  bool has_worker() {
    const Json node = get(kEdgeNodes + "/edge0");
    const auto& workers = node.at("spec/workers").as_array();
    return std::any_of(workers.begin(), workers.end(),
                       [](const Json& one) { return one["key"].as_string() == kWorker; });
  }
  void run_pod() {
    ASSERT_TRUE(eventually([&] { return exists(kPod); })) << api_.get(kRun).text;
    patch_status(kPod,
                 "{phase: Running, conditions: [{type: Ready, status: 'True'}], containerStatuses: "
                 "[{name: trainer, ready: true, restartCount: 0, state: {running: {}}}]}");
    ASSERT_TRUE(eventually([&] { return phase() == "Training"; })) << api_.get(kRun).text;
  }
  void report(const std::string& report) {
    patch_status(kEdgeNodes + "/edge0", "{workers: [{key: " + kWorker + ", uid: " + uid_of(kRun) +
                                            ", report: " + report + "}]}");
  }
  void upload_result() {
    report("{artifacts: {model-5: {sha256: '" + digest('5') +
           "', bytes: 9, sent: 9, state: Uploaded}}, results: {final: {data: {artifact: model-5, "
           "file: model.onnx, format: onnx, metrics: {accuracy: 0.97}}}}}");
  }
};

class TrainingInAnyOrder : public TrainingInACluster, public ::testing::WithParamInterface<int> {};

TEST_P(TrainingInAnyOrder, RunStartsAfterAnyOrderOfCreation) {
  std::vector<std::pair<int, std::function<void()>>> steps{{0, [&] { add_edge0(); }},
                                                           {1, [&] { add_model(); }},
                                                           {2, [&] { add_dataset(); }},
                                                           {3, [&] { add_run(); }}};
  const auto by_number = [](const auto& a, const auto& b) { return a.first < b.first; };
  for (int i = 0; i < GetParam(); ++i) std::next_permutation(steps.begin(), steps.end(), by_number);
  for (const auto& step : steps) {
    EXPECT_FALSE(exists(kPod));
    step.second();
  }
  EXPECT_TRUE(eventually([&] { return exists(kPod) && has_worker(); })) << api_.get(kRun).text;
}

// A selection of the 24 orders: each step is last once, and the run is first once.
INSTANTIATE_TEST_SUITE_P(Order, TrainingInAnyOrder, ::testing::Values(0, 4, 9, 16, 18, 23));

TEST_F(TrainingInACluster, ResultBecomesVersionOfTheModel) {
  add_all();
  run_pod();
  report(
      "{progress: {phase: Evaluating, step: 5, steps: 10, data: {epoch: 1, epochs: 5, loss: "
      "0.5}}}");
  ASSERT_TRUE(eventually([&] { return phase() == "Evaluating"; }));
  upload_result();
  patch_status(kPod, "{phase: Succeeded}");
  ASSERT_TRUE(eventually([&] { return phase() == "Complete"; })) << api_.get(kRun).text;
  const Json model = get(kEdgeaiModels + "/digits");
  EXPECT_EQ(model.at("spec/version").as_string(), "5");
  EXPECT_EQ(model.at("spec/modelUrl").as_string(),
            "http://registry:8092/v1/blobs/sha256:" + digest('5') + "/model.onnx");
  EXPECT_EQ(model.at("spec/sourceJob").as_string(), "TrainingModel/digits-5");
  EXPECT_EQ(model.at("status/metrics/0/key").as_string(), "accuracy");
  EXPECT_EQ(model.at("status/metrics/0/value").as_string(), "0.97");
  EXPECT_TRUE(eventually([&] { return !has_worker(); }));
  EXPECT_TRUE(exists(kPod)) << "the log of an ended pod stays";
}

TEST_F(TrainingInACluster, EndedRunNeverStartsAgain) {
  add_all();
  run_pod();
  upload_result();
  patch_status(kPod, "{phase: Succeeded}");
  ASSERT_TRUE(eventually([&] { return phase() == "Complete"; }));
  ASSERT_EQ(api_.remove(kPod).status, 200);
  patch(kRun, "{spec: {trainer: {epochs: 9}}}");
  patch(kEdgeaiModels + "/digits", "{spec: {version: '6', sha256: '" + digest('6') + "'}}");
  ASSERT_TRUE(becomes_idle());
  EXPECT_FALSE(exists(kPod));
  EXPECT_EQ(get(kEdgeaiModels + "/digits").at("spec/version").as_string(), "6");
  stop();
  EXPECT_TRUE(restart_writes_nothing());
}

TEST_F(TrainingInACluster, NewModelVersionDoesNotChangeTheRun) {
  add_all();
  run_pod();
  const std::string pod = uid_of(kPod);
  patch(kEdgeaiModels + "/digits", "{spec: {version: '4', sha256: '" + digest('4') + "'}}");
  ASSERT_TRUE(becomes_idle());
  EXPECT_EQ(uid_of(kPod), pod);
  EXPECT_EQ(get(kRun).at("status/base/archive/version").as_string(), "3");
  EXPECT_EQ(get(kEdgeNodes + "/edge0").at("spec/models/0/target").as_string(), "3");
}

TEST_F(TrainingInACluster, SuspendedRunKeepsItsWorkerAndContinues) {
  add_all();
  run_pod();
  const std::string pod = uid_of(kPod);
  patch(kRun, "{spec: {suspend: true}}");
  ASSERT_TRUE(eventually([&] { return !exists(kPod) && phase() == "Suspended"; }));
  EXPECT_TRUE(has_worker());
  patch(kRun, "{spec: {suspend: false}}");
  run_pod();
  EXPECT_NE(uid_of(kPod), pod);
  EXPECT_TRUE(eventually([&] { return get(kRun).at("status/attempts").as_integer() == 2; }));
}

TEST_F(TrainingInACluster, PodThatDisappearsIsCreatedAgain) {
  add_all();
  run_pod();
  const std::string pod = uid_of(kPod);
  ASSERT_EQ(api_.remove(kPod).status, 200);
  EXPECT_TRUE(eventually([&] { return exists(kPod) && uid_of(kPod) != pod; }));
}

TEST_F(TrainingInACluster, FailedRunLeavesNothingOnTheNode) {
  add_all();
  run_pod();
  report("{results: {error: {data: {message: 'train.csv, line 17', permanent: true}}}}");
  ASSERT_TRUE(eventually([&] { return phase() == "Failed"; })) << api_.get(kRun).text;
  EXPECT_TRUE(eventually([&] { return !exists(kPod) && !has_worker(); }));
  EXPECT_TRUE(get(kEdgeNodes + "/edge0").at("spec/models").as_array().empty());
  EXPECT_EQ(get(kEdgeaiModels + "/digits").at("spec/version").as_string(), "3");
  ASSERT_TRUE(becomes_idle());
  stop();
  EXPECT_TRUE(restart_writes_nothing());
}

TEST_F(TrainingInACluster, DeletedRunLeavesNothingOnTheNode) {
  add_all();
  run_pod();
  ASSERT_EQ(api_.remove(kRun).status, 200);
  EXPECT_TRUE(eventually([&] { return !has_worker(); }));
  EXPECT_TRUE(get(kEdgeNodes + "/edge0").at("spec/models").as_array().empty());
}

TEST_F(TrainingInACluster, ResultOfUnknownModelCreatesTheModel) {
  add_edge0();
  post(kTrainingModels,
       "{apiVersion: ai.kubeedge.io/v1alpha1, kind: TrainingModel, metadata: {name: digits-5}, "
       "spec: {modelName: fresh, nodeName: edge0, image: 'train:1'}}");
  run_pod();
  upload_result();
  ASSERT_TRUE(eventually([&] { return phase() == "Complete"; })) << api_.get(kRun).text;
  const Json model = get(kEdgeaiModels + "/fresh");
  EXPECT_EQ(model.at("spec/version").as_string(), digest('5').substr(0, 12));
  EXPECT_EQ(model.at("spec/size").as_integer(), 9);
}

}  // namespace training_cluster_test
}  // namespace varda::controllers::trainingmodel
