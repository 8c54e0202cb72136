// Federated jobs over the real API server, in memory, with the controllers of all kinds. The test
// plays the nodes and writes their reports.

#include <algorithm>
#include <map>
#include <set>

#include "base/metric_collector.h"
#include "controllers/testing/control_plane.h"

namespace varda::controllers::federatedlearning {
namespace federated_cluster_test {

using namespace testing;  // NOLINT: of a test, in a test

const std::string kEdgeaiModels = "/apis/edgeai.io/v1alpha1/namespaces/default/models";
const std::string kDatasets = "/apis/edgeai.io/v1alpha1/namespaces/default/datasets";
const std::string kJob = kFederatedJobs + "/digits";
const std::string kAggregator = "digits-federated-aggregator-0b2d2f8711be";  // on cloud0
const std::string kAggregatorPod = kPods + "/" + kAggregator;

std::string digest(char c) { return std::string(64, c); }

class FederatedInACluster : public ControlPlane {
 protected:
  void add_machine(const std::string& name, const std::string& labels) {
    add_node(name, labels);
    add_agent(name);
    patch_status(kEdgeNodes + "/" + name, "{observedGeneration: 1000, datasetRoots: [/data]}");
  }
  void add_edge(const std::string& name) {
    add_machine(name, "{node-role.kubernetes.io/edge: '', line: '7'}");
  }
  // Nodes cannot count this format, so the test needs no report of a count.
  void add_dataset(const std::string& node) {
    post(kDatasets, "{apiVersion: edgeai.io/v1alpha1, kind: Dataset, metadata: {name: data-" +
                        node + "}, spec: {format: npy, dataUrl: /data/digits, nodeName: " + node +
                        "}}");
  }
  /// Workers of the user need no initial model.
  void add_job(const std::string& trainers, const std::string& more = "") {
    post(kFederatedJobs,
         "{apiVersion: sedna.io/v1alpha1, kind: FederatedLearningJob, metadata: {name: digits}, "
         "spec: {aggregationWorker: {model: {name: digits}, nodeName: cloud0, workerSpec: "
         "{containers: [{image: 'aggregate:1'}]}}, trainingWorkers: [" +
             trainers + "]" + more + "}}");
  }
  static std::string trainer(const std::string& place) {
    return "{" + place + ", workerSpec: {containers: [{image: 'train:1'}]}}";
  }
  void add_all() {
    add_machine("cloud0", "{}");
    for (const char* node : {"edge0", "edge1"}) {
      add_edge(node);
      add_dataset(node);
    }
    add_job(trainer("selector: {matchLabels: {line: '7'}}"), ", federated: {rounds: 9}");
  }

  Json job() { return get(kJob); }
  std::string phase() { return job().at("status/phase").as_string(); }
  std::string uid_of(const std::string& path) { return get(path).at("metadata/uid").as_string(); }
  std::string reason_of(const std::string& type) {
    const Json live = job();
    for (const Json& one : live.at("status/conditions").as_array())
      if (one["type"].as_string() == type) return one["reason"].as_string();
    return "";
  }
  std::set<std::string> nodes_of_participants() {
    std::set<std::string> out;
    const Json live = job();
    for (const Json& one : live.at("status/participants").as_array())
      out.insert(one["node"].as_string());
    return out;
  }
  /// The pod of the trainer on the node; "": none.
  std::string trainer_on(const std::string& node) {
    const Json live = job();
    for (const Json& one : live.at("status/participants").as_array())
      if (one["node"].as_string() == node) return one["worker"].as_string();
    return "";
  }
  std::set<std::string> workers_of(const std::string& node) {
    std::set<std::string> out;
    const Json live = get(kEdgeNodes + "/" + node);
    for (const Json& one : live.at("spec/workers").as_array()) out.insert(one["key"].as_string());
    return out;
  }
  /// The agent opens the port of the trainer's stream.
  void open_stream(const std::string& node) {
    ASSERT_TRUE(eventually([&] { return !workers_of(node).empty(); })) << api_.get(kJob).text;
    patch_status(kEdgeNodes + "/" + node,
                 "{workers: [{key: " + *workers_of(node).begin() + ", uid: " + uid_of(kJob) +
                     ", streams: [{name: aggregator, address: '127.0.0.1:40217'}]}]}");
  }
  void run_pod(const std::string& name) {
    ASSERT_TRUE(eventually([&] { return exists(kPods + "/" + name); })) << api_.get(kJob).text;
    patch_status(kPods + "/" + name,
                 "{phase: Running, podIP: 10.42.0.7, conditions: [{type: Ready, status: 'True'}], "
                 "containerStatuses: [{name: worker, ready: true, restartCount: 0, state: "
                 "{running: {}}}]}");
  }
  void run_all() {
    add_all();
    run_pod(kAggregator);
    for (const char* node : {"edge0", "edge1"}) {
      open_stream(node);
      run_pod(trainer_on(node));
    }
    ASSERT_TRUE(eventually([&] {
      return phase() == "Training" && job().at("status/active").as_integer() == 3;
    })) << api_.get(kJob).text;
  }
  void report(const std::string& report) {
    patch_status(kEdgeNodes + "/cloud0", "{workers: [{key: default/" + kAggregator + ", uid: " +
                                             uid_of(kJob) + ", report: " + report + "}]}");
  }
  void upload_result() {
    report("{artifacts: {model: {sha256: '" + digest('5') +
           "', bytes: 9, sent: 9, state: Uploaded}}, results: {final: {data: {artifact: model, "
           "file: model.onnx, format: onnx, metrics: {accuracy: 0.97}, participants: 2, "
           "updatesSha256: '" +
           digest('7') + "'}}}}");
  }
};

class FederatedInAnyOrder : public FederatedInACluster,
                            public ::testing::WithParamInterface<int> {};

TEST_P(FederatedInAnyOrder, JobStartsAfterAnyOrderOfCreation) {
  std::vector<std::pair<int, std::function<void()>>> steps{
      {0, [&] { add_machine("cloud0", "{}"); }},
      {1, [&] { add_edge("edge0"); }},
      {2, [&] { add_dataset("edge0"); }},
      {3, [&] { add_job(trainer("dataset: {name: data-edge0}")); }}};
  const auto by_number = [](const auto& a, const auto& b) { return a.first < b.first; };
  for (int i = 0; i < GetParam(); ++i) std::next_permutation(steps.begin(), steps.end(), by_number);
  for (const auto& step : steps) step.second();
  open_stream("edge0");
  EXPECT_TRUE(eventually([&] {
    return exists(kAggregatorPod) && exists(kPods + "/" + trainer_on("edge0"));
  })) << api_.get(kJob).text;
}

// A selection of the 24 orders: each step is last once, and the job is first once.
INSTANTIATE_TEST_SUITE_P(Order, FederatedInAnyOrder, ::testing::Values(0, 4, 9, 16, 18, 23));

TEST_F(FederatedInACluster, ResultBecomesVersionOfTheModel) {
  run_all();
  upload_result();
  patch_status(kAggregatorPod, "{phase: Succeeded}");
  ASSERT_TRUE(eventually([&] { return phase() == "Complete"; })) << api_.get(kJob).text;
  const Json model = get(kEdgeaiModels + "/digits");
  EXPECT_EQ(model.at("spec/version").as_string(), digest('5').substr(0, 12));
  EXPECT_EQ(model.at("spec/sourceJob").as_string(), "FederatedLearningJob/digits");
  EXPECT_EQ(model.at("spec/metadata/participants").as_string(), "2");
  EXPECT_EQ(model.at("spec/metadata/updatesSha256").as_string(), digest('7'));
  EXPECT_EQ(model.at("status/metrics/0/value").as_string(), "0.97");
  EXPECT_TRUE(
      eventually([&] { return workers_of("cloud0").empty() && workers_of("edge0").empty(); }));
  EXPECT_TRUE(exists(kAggregatorPod)) << "the log of an ended pod stays";
}

TEST_F(FederatedInACluster, EndedJobNeverStartsAgain) {
  run_all();
  upload_result();
  patch_status(kAggregatorPod, "{phase: Succeeded}");
  ASSERT_TRUE(eventually([&] { return phase() == "Complete"; }));
  ASSERT_EQ(api_.remove(kAggregatorPod).status, 200);
  patch(kJob, "{spec: {federated: {rounds: 99}}}");
  add_edge("edge2");
  add_dataset("edge2");
  ASSERT_TRUE(becomes_idle());
  EXPECT_FALSE(exists(kAggregatorPod));
  EXPECT_TRUE(workers_of("edge2").empty());
  EXPECT_EQ(nodes_of_participants(), (std::set<std::string>{"edge0", "edge1"}));
}

TEST_F(FederatedInACluster, NodesThatJoinAndLeaveTheGroupChangeTheParticipants) {
  run_all();
  add_edge("edge2");
  add_dataset("edge2");
  open_stream("edge2");
  run_pod(trainer_on("edge2"));
  const auto assigned = [&] {
    std::set<std::string> out;
    const Json node = get(kEdgeNodes + "/cloud0");
    for (const Json& one : node.at("spec/workers/0/assignment/participants").as_array())
      out.insert(one["node"].as_string());
    return out;
  };
  EXPECT_TRUE(eventually([&] {
    return assigned() == std::set<std::string>{"edge0", "edge1", "edge2"};
  })) << api_.get(kEdgeNodes + "/cloud0").text;
  const std::string aggregator = uid_of(kAggregatorPod), former = trainer_on("edge0"),
                    other = uid_of(kPods + "/" + trainer_on("edge1"));
  patch(kNodes + "/edge0", "{metadata: {labels: {line: null}}}");
  EXPECT_TRUE(eventually([&] {
    return assigned() == std::set<std::string>{"edge1", "edge2"} && !exists(kPods + "/" + former) &&
           workers_of("edge0").empty();
  })) << api_.get(kJob).text;
  EXPECT_EQ(uid_of(kAggregatorPod), aggregator) << "the aggregation worker follows its assignment";
  EXPECT_EQ(uid_of(kPods + "/" + trainer_on("edge1")), other) << "other workers continue";
}

TEST_F(FederatedInACluster, ChangedSettingsReachTheAggregatorWithoutARestart) {
  run_all();
  const std::string pod = uid_of(kAggregatorPod);
  patch(kJob, "{spec: {federated: {rounds: 30, quorum: 0.5, compression: {encoding: int8}}}}");
  const auto parameters = [&] {
    return get(kEdgeNodes + "/cloud0").at("spec/workers/0/assignment/parameters");
  };
  ASSERT_TRUE(eventually([&] { return parameters()["rounds"].as_integer() == 30; }));
  EXPECT_EQ(parameters()["quorum"].as_double(), 0.5);
  EXPECT_FALSE(parameters().contains("compression")) << "a running job keeps its encoding";
  EXPECT_TRUE(eventually([&] { return reason_of("SpecApplied") == "CannotChange"; }));
  EXPECT_EQ(uid_of(kAggregatorPod), pod);
}

TEST_F(FederatedInACluster, FailedPodsAreReplaced) {
  run_all();
  const std::string pod = kPods + "/" + trainer_on("edge0"), before = uid_of(pod);
  ASSERT_EQ(api_.remove(pod).status, 200);
  EXPECT_TRUE(eventually([&] { return exists(pod) && uid_of(pod) != before; }));
}

TEST_F(FederatedInACluster, ReplicasShareTheNodeOfTheDataset) {
  add_machine("cloud0", "{}");
  add_edge("edge0");
  add_dataset("edge0");
  add_job(trainer("dataset: {name: data-edge0}, replicas: 3"));
  EXPECT_TRUE(eventually([&] { return workers_of("edge0").size() == 3; })) << api_.get(kJob).text;
  EXPECT_EQ(job().at("status/participants").as_array().size(), 3u);
}

TEST_F(FederatedInACluster, SuspendedJobKeepsItsWorkers) {
  run_all();
  patch(kJob, "{spec: {suspend: true}}");
  ASSERT_TRUE(eventually([&] { return !exists(kAggregatorPod) && phase() == "Suspended"; }));
  EXPECT_FALSE(workers_of("cloud0").empty());
  EXPECT_FALSE(workers_of("edge0").empty());
  patch(kJob, "{spec: {suspend: false}}");
  run_pod(kAggregator);
  EXPECT_TRUE(eventually([&] { return phase() == "Training"; })) << api_.get(kJob).text;
}

TEST_F(FederatedInACluster, DeletedJobLeavesNothingOnTheNodes) {
  run_all();
  ASSERT_EQ(api_.remove(kJob).status, 200);
  EXPECT_TRUE(eventually([&] {
    return workers_of("cloud0").empty() && workers_of("edge0").empty() &&
           workers_of("edge1").empty();
  }));
}

TEST_F(FederatedInACluster, TwoJobsShareNothing) {
  run_all();
  const std::string first = trainer_on("edge0");
  post(kFederatedJobs,
       "{apiVersion: sedna.io/v1alpha1, kind: FederatedLearningJob, metadata: {name: other}, spec: "
       "{aggregationWorker: {model: {name: digits}, nodeName: cloud0, workerSpec: {containers: "
       "[{image: 'aggregate:1'}]}}, trainingWorkers: [" +
           trainer("dataset: {name: data-edge0}") + "]}}");
  ASSERT_TRUE(eventually([&] {
    return workers_of("edge0").size() == 2 && workers_of("cloud0").size() == 2;
  })) << api_.get(kFederatedJobs + "/other").text;
  const Json node = get(kEdgeNodes + "/cloud0");
  std::map<std::string, std::size_t> participants;  // by owner
  for (const Json& worker : node.at("spec/workers").as_array())
    participants[worker["owner"].as_string()] =
        worker.at("assignment/participants").as_array().size();
  EXPECT_EQ(participants, (std::map<std::string, std::size_t>{{"FederatedLearningJob/digits", 2},
                                                              {"FederatedLearningJob/other", 1}}));
  ASSERT_EQ(api_.remove(kFederatedJobs + "/other").status, 200);
  EXPECT_TRUE(eventually([&] { return workers_of("edge0").size() == 1; }));
  EXPECT_EQ(trainer_on("edge0"), first);
  EXPECT_TRUE(exists(kPods + "/" + first));
}

TEST_F(FederatedInACluster, MetricsFollowTheStatusUntilDeletion) {
  run_all();
  report(
      "{progress: {phase: Training, step: 2, steps: 9, data: {joined: 2, bytesUp: 5, metrics: "
      "{accuracy: 0.5}}}}");
  const auto text = [&] { return metrics::text_of(controllers_->metrics()); };
  const auto has = [&](const std::string& line) {
    return text().find(line + "\n") != std::string::npos;
  };
  const std::string job = "{namespace=\"default\",name=\"digits\"";
  EXPECT_TRUE(eventually([&] { return has("varda_federated_job_round" + job + "} 2"); })) << text();
  EXPECT_TRUE(has("varda_federated_job_rounds" + job + "} 9")) << text();
  EXPECT_TRUE(has("varda_federated_job_bytes_total" + job + ",direction=\"up\"} 5")) << text();
  EXPECT_TRUE(has("varda_federated_job_metric" + job + ",metric=\"accuracy\"} 0.5")) << text();
  EXPECT_TRUE(has("varda_federated_job_participants" + job + ",state=\"Running\"} 2")) << text();
  ASSERT_EQ(api_.remove(kJob).status, 200);
  EXPECT_TRUE(eventually([&] { return text().find("federated") == std::string::npos; }));
}

TEST_F(FederatedInACluster, IdleJobCausesNoWrites) {
  run_all();
  ASSERT_TRUE(becomes_idle());
  stop();
  EXPECT_TRUE(restart_writes_nothing());
}

}  // namespace federated_cluster_test
}  // namespace varda::controllers::federatedlearning
