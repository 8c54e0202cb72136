#include "api/sedna/federated_learning_job.h"

#include <utility>

#include "api/describe.h"
#include "api/period.h"
#include "api/rule.h"
#include "api/sedna/describe_worker.h"
#include "api/sedna/federated_shape.h"

namespace varda::api {

namespace {

using rules::Shape;

constexpr std::string_view kDatasetNameOrEmpty = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$";

const rules::Member kName{"name"};
const rules::Member kSelection{"selector", Shape::kObject};
const rules::Member kUsersPod{"workerSpec", Shape::kObject};
const rules::Member kUsersTemplate{"template", Shape::kObject};
const rules::Member kData{"dataset", Shape::kObject};

Schema anything_within() {
  Schema open;
  open.type = Schema::Type::kObject;
  open.preserve_unknown = true;
  return open;
}

// The members only give the schema types.
struct TransmitterShape {
  Json ws, s3;

  static void describe(Type<TransmitterShape>& t) {
    t.doc("Sedna's way of the updates. Varda accepts it, and has a way of its own.");
    t.field("ws", &TransmitterShape::ws, "Websocket.").shaped(anything_within());
    t.field("s3", &TransmitterShape::s3, "A bucket.").shaped(anything_within());
  }
};

/// Places and pods of both workers.
template <typename W>
void add_common_rules(Type<W>& t) {
  for (Rule& rule : detail::worker_rules()) t.rule(std::move(rule));
  t.rule(rules::each_differs("env", "name", federated_variables()));
  for (const std::string spec : {"workerSpec", "workerSpec.spec", "template.spec"}) {
    t.rule(rules::one_of(spec + ".restartPolicy", {"OnFailure", "Never"},
                         "must be OnFailure or Never: a job ends"));
  }
}

}  // namespace

const std::vector<std::string>& federated_variables() {
  static const std::vector<std::string> names{"NAMESPACE",
                                              "JOB_KIND",
                                              "JOB_NAME",
                                              "SERVICE_NAME",
                                              "WORKER_NAME",
                                              "WORKER_ROLE",
                                              "NODE_NAME",
                                              "MODEL_NAME",
                                              "MODEL_VERSION",
                                              "MODEL_PATH",
                                              "MODEL_URL",
                                              "BASE_MODEL_URL",
                                              "DATASET_NAME",
                                              "TRAIN_DATASET_URL",
                                              "TRAIN_DATASET_FORMAT",
                                              "EVAL_DATASET_URL",
                                              "EVAL_DATASET_FORMAT",
                                              "PARTICIPANTS_COUNT",
                                              "AGG_BIND_PORT",
                                              "AGG_IP",
                                              "AGG_PORT",
                                              "PARAMETERS",
                                              "FEDERATED",
                                              "VARDA_WORKER_SOCKET",
                                              "VARDA_WORKER_TOKEN_FILE"};
  return names;
}

std::int64_t FederatedLearningJobSpec::deadline_seconds() const {
  return period_seconds(active_deadline);
}

std::int64_t FederatedLearningJobSpec::rounds() const {
  return federated["rounds"].as_integer(kDefaultRounds);
}

bool FederatedLearningJobStatus::ended() const {
  for (const char* type : {"Complete", "Failed"}) {
    const meta::Condition* condition = meta::find_condition(conditions, type);
    if (condition != nullptr && condition->status == "True") return true;
  }
  return false;
}

void FederatedAggregationWorker::describe(Type<FederatedAggregationWorker>& t) {
  using W = FederatedAggregationWorker;
  t.doc("The worker that makes the next model from the updates of the training workers.");
  t.field<ModelReference>("model", &Worker::model,
                          "The Model that gets the result as a new version. Its present version is "
                          "the initial model, unless pretrainedModel is set.")
      .required();
  describe_worker_place(t);
  describe_worker_pod(t, PodText::kBare);
  describe_pod_settings(t);
  t.keep_unknown(&W::unknown);
  add_common_rules(t);
  t.rule(rules::one_of("model.kind", {std::string(ModelReference::kModel)},
                       "must be Model: a Model gets the result"));
}

void FederatedDataset::describe(Type<FederatedDataset>& t) {
  using D = FederatedDataset;
  t.doc("A Dataset of the same namespace, by name or by labels.");
  t.field("name", &D::name, "Name of the Dataset.").length(0, 253).pattern(kDatasetNameOrEmpty);
  t.field("group", &D::group,
          "API group of the Dataset. Required if both groups have a Dataset with this name.")
      .one_of({"edgeai.io", "sedna.io"});
  t.field("selector", &D::selector,
          "Labels of Datasets, instead of name. A worker takes the one on its node.");
  t.keep_unknown(&D::unknown);
  t.rule(rules::any_required({kName, kSelection}, "either name or selector is required"));
  t.rule(rules::forbidden_with(kSelection, {kName}, "may not be set together with name"));
}

void FederatedTrainingWorker::describe(Type<FederatedTrainingWorker>& t) {
  using W = FederatedTrainingWorker;
  t.doc(
      "Workers that train on the data of their nodes: on one node, or on each node of a group. "
      "Default place: the node of the dataset.");
  describe_worker_place(t);
  t.field("dataset", &W::dataset,
          "The training data. Default: with a selector, the only Dataset on each node; else none.");
  describe_worker_replicas(t, "Number of workers. Default: 1. 0 stops them.",
                           Worker::kEdgeReplicasMax);
  describe_worker_pod(t, PodText::kBare);
  describe_pod_settings(t);
  t.keep_unknown(&W::unknown);
  add_common_rules(t);
  t.rule(rules::any_required({{"nodeName"},
                              kSelection,
                              kData,
                              {"workerSpec.nodeName"},
                              {"workerSpec.spec.nodeName"},
                              {"template.spec.nodeName"}},
                             "nodeName, selector or dataset says where the worker runs"));
  t.rule(rules::when_any_set(
      {kSelection},
      rules::at_most(
          "replicas", 1,
          "must be 0 or 1 with a selector: one worker runs on every node that matches")));
  t.rule(rules::unless_any_set(
      {kUsersPod, kUsersTemplate},
      rules::at_most(
          "replicas", 1,
          "must be 0 or 1 without a workerSpec or template: one trainer runs on a node")));
  t.rule(rules::unless_any_set(
      {kUsersPod, kUsersTemplate, kSelection},
      rules::required(kData, "dataset is required without a workerSpec or template")));
}

void FederatedLearningJobSpec::describe(Type<FederatedLearningJobSpec>& t) {
  using S = FederatedLearningJobSpec;
  t.doc("The model, the workers, and the settings of the training.");
  t.field("aggregationWorker", &S::aggregation_worker,
          "The worker that makes the next model. Without workerSpec and template: varda-aggregate.")
      .required();
  t.field("trainingWorkers", &S::training_workers,
          "The workers that train. Without workerSpec and template: varda-train.")
      .required()
      .items_min(1)
      .items_max(S::kTrainingWorkersMax);
  t.field("federated", &S::federated,
          "Extension: settings of varda-aggregate. Workers of the user get them in PARAMETERS.")
      .shaped(federated_shape());
  t.field("pretrainedModel", &S::pretrained_model,
          "The initial model, if it is another one than aggregationWorker.model.");
  t.field("transmitter", &S::transmitter,
          "Sedna's way of the updates. Varda accepts it, and has a way of its own.")
      .shaped(ops_of<TransmitterShape>().schema());
  t.field("activeDeadline", &S::active_deadline,
          "Extension: time limit of the job: seconds, or a time such as 90m or 1d12h. Default: "
          "none.")
      .int_or_string()
      .range(0, kPeriodSecondsMax)
      .pattern(kPeriodPattern)
      .length(0, kPeriodLengthMax);
  t.field("backoffLimit", &S::backoff_limit,
          "Extension: number of failed attempts of the aggregation worker after which it is "
          "started again. One more ends the job.")
      .defaulted()
      .format("int32")
      .range(0, 1000);
  t.field("suspend", &S::suspend,
          "Extension: true removes the Pods and keeps their files. false continues the job.");
  t.keep_unknown(&S::unknown);
}

void FederatedAggregatorStatus::describe(Type<FederatedAggregatorStatus>& t) {
  using A = FederatedAggregatorStatus;
  t.doc("The aggregation worker.");
  t.field("node", &A::node, "Node of the worker. It stays there.").length(0, 253);
  t.field("pod", &A::pod, "The Pod of the last attempt.").length(0, 253);
  t.field("podUid", &A::pod_uid, "UID of that Pod.").length(0, 63);
  t.field("address", &A::address, "Address of the Pod, as HOST:PORT.").length(0, 300);
  t.field("attempts", &A::attempts, "Number of started attempts.").always().format("int64");
  t.field("failed", &A::failed, "Number of failed attempts.").always().format("int64");
  t.field("earlier", &A::earlier, "Attempts of former pods.");
  t.keep_unknown(&A::unknown);
}

void FederatedParticipant::describe(Type<FederatedParticipant>& t) {
  using P = FederatedParticipant;
  t.doc("One training worker.");
  t.field("worker", &P::worker, "Name of the worker's Pod.").required().length(1, 253);
  t.field("node", &P::node, "Node of the worker.").length(0, 253);
  t.field("dataset", &P::dataset, "The Dataset that it trains on.").length(0, 253);
  t.field("state", &P::state,
          "Pending, Running, Joined, Training, Uploaded, Dropped, Ended or Failed.")
      .length(0, 63);
  t.field("reason", &P::reason, "Reason of Pending, Dropped and Failed.").length(0, 128);
  t.field("message", &P::message, "Human-readable explanation.").length(0, 1024);
  t.keep_unknown(&P::unknown);
}

void FederatedRound::describe(Type<FederatedRound>& t) {
  using R = FederatedRound;
  t.doc("Results of one round.");
  t.field("round", &R::round, "Number of the round, from 1.").required().format("int64");
  t.field("participants", &R::participants, "Number of accepted updates.").format("int64");
  t.field("dropped", &R::dropped, "Number of clients without an accepted update.").format("int64");
  t.field("seconds", &R::seconds, "Duration, as text.").length(0, 32);
  t.field("metrics", &R::metrics, "Metrics of the evaluation, as text.")
      .items_max(16)
      .each_length(0, 32);
}

void FederatedSummary::describe(Type<FederatedSummary>& t) {
  t.doc("Texts for tables.");
  t.field("round", &FederatedSummary::round, "The present round and the number of rounds.")
      .length(0, 63);
  t.field("participants", &FederatedSummary::participants, "Workers that joined, and all.")
      .length(0, 63);
  t.field("metric", &FederatedSummary::metric, "The main metric.").length(0, 63);
}

void FederatedLearningJobStatus::describe(Type<FederatedLearningJobStatus>& t) {
  using S = FederatedLearningJobStatus;
  t.doc("The observed state.");
  t.field("phase", &S::phase,
          "Pending, Fetching, Waiting, Training, Aggregating, Evaluating, Uploading, Complete, "
          "Failed or Suspended.")
      .length(0, 63);
  t.field("conditions", &S::conditions,
          "Ready: the aggregation worker runs. Training: rounds are under way. Participants: every "
          "training worker has its place. SpecApplied: the job follows its spec. Suspended: "
          "spec.suspend is true. Complete: the Model has the result. Failed: the job ended without "
          "a result. The guide lists the reasons.")
      .items_max(16)
      .list_map({"type"});
  t.field("observedGeneration", &S::observed_generation,
          "metadata.generation that this status describes.")
      .format("int64");
  t.field("startTime", &S::start_time,
          "Time when the aggregation worker's Pod was created, since the job was last suspended.")
      .format("date-time");
  t.field("completionTime", &S::completion_time, "Time when the job ended.").format("date-time");
  t.field("active", &S::active, "Number of running workers.").always().format("int32");
  t.field("succeeded", &S::succeeded, "Number of workers that succeeded.").always().format("int32");
  t.field("failed", &S::failed, "Number of workers that failed.").always().format("int32");
  t.field("round", &S::round, "The present round, from 1.").always().format("int64");
  t.field("rounds", &S::rounds, "Number of rounds.").format("int64");
  t.field("aggregator", &S::aggregator, "The aggregation worker.");
  t.field("base", &S::base, "The initial model of this job.");
  t.field("fixed", &S::fixed, "Parts of the spec that cannot change in this job.")
      .shaped(anything_within());
  t.field("participants", &S::participants, "The training workers.")
      .items_max(S::kParticipantsMax)
      .atomic();
  t.field("metrics", &S::metrics, "Metrics of the last evaluation, as text.")
      .items_max(S::kMetricsMax)
      .list_map({"key"});
  t.field("history", &S::history, "Results of at most 32 rounds.")
      .items_max(S::kHistoryMax)
      .atomic();
  t.field("bytesUp", &S::bytes_up, "Bytes of updates that the aggregation worker received.")
      .always()
      .format("int64");
  t.field("bytesDown", &S::bytes_down, "Bytes of models that the aggregation worker sent.")
      .always()
      .format("int64");
  t.field("epsilon", &S::epsilon, "Spent epsilon of differential privacy, as text.").length(0, 32);
  t.field("updateTime", &S::update_time, "Time of the last change of the figures.")
      .format("date-time");
  t.field("produced", &S::produced, "The result of the job.");
  t.field("metricsUrl", &S::metrics_url, "URL of the metrics of all rounds, a CSV file.")
      .length(0, 2048);
  t.field("summary", &S::summary, "Texts for tables.");
  t.keep_unknown(&S::unknown);
}

void FederatedLearningJob::describe(Type<FederatedLearningJob>& t) {
  using J = FederatedLearningJob;
  t.doc("One model, trained by workers on the nodes that have the data.");
  t.field("metadata", &J::metadata, "Standard object metadata.");
  t.field("spec", &J::spec, "The model, the workers, and the settings of the training.").required();
  t.field("status", &J::status, "The observed state. Only the operator writes it.");
  t.keep_unknown(&J::unknown);
  t.rule(rules::name_is_label(kNameMax, "because labels of the pods have the same value"));
}

const Kind& FederatedLearningJob::kind() {
  static const Kind kind{
      .resource = {"sedna.io", "v1alpha1", "FederatedLearningJob", "federatedlearningjobs", true},
      .singular = "federatedlearningjob",
      .page = "",
      .short_names = {"fl"},
      .columns =
          {
              {"Model", "string", ".spec.aggregationWorker.model.name", "Name of the Model"},
              {"Phase", "string", ".status.phase", "Phase of the job"},
              {"Round", "string", ".status.summary.round", "The present round"},
              {"Participants", "string", ".status.summary.participants",
               "Workers that joined, and all"},
              {"Metric", "string", ".status.summary.metric", "The main metric"},
              {"Node", "string", ".status.aggregator.node", "Node of the aggregation worker", 1},
              {"Version", "string", ".status.produced.version", "The version of the Model", 1},
              {"Reason", "string", ".status.conditions[?(@.type==\"Training\")].reason",
               "Reason of the condition Training", 1},
              {"Message", "string", ".status.conditions[?(@.type==\"Training\")].message",
               "Human-readable explanation", 1},
              {"Age", "date", ".metadata.creationTimestamp", ""},
          },
      .scale = {},
      .notes =
          {
              "Manifests for Sedna apply. A worker's pod is in `template` or in `workerSpec`, and "
              "its node in\n  `nodeName` or in the pod's own `nodeName`. A container needs no "
              "name.",
              "Workers without a pod, `federated`, `selector`, `replicas`, `activeDeadline`, "
              "`backoffLimit`,\n  `suspend` and the pod settings are extensions.",
              "`transmitter` is accepted. Updates travel through the gateway whatever it says.",
          },
      .schema = &type_info<FederatedLearningJob>().schema,
  };
  return kind;
}

Result<FederatedLearningJob> FederatedLearningJob::from_json(const Json& object) {
  return read_object<FederatedLearningJob>(object);
}
Json FederatedLearningJobStatus::to_json() const { return write_part(*this); }
Json FederatedLearningJob::to_json() const { return write_object(*this); }

}  // namespace varda::api
