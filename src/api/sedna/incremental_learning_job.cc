#include "api/sedna/incremental_learning_job.h"

#include <algorithm>
#include <utility>

#include "api/ai/trainer_shape.h"
#include "api/describe.h"
#include "api/rule.h"
#include "api/sedna/describe_worker.h"
#include "api/sedna/incremental_shape.h"
#include "incremental/settings.h"

namespace varda::api {

namespace {

using rules::Shape;

constexpr std::string_view kOptionalName = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$";
constexpr std::string_view kRequiredName = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$";

const rules::Member kUsersPodSpec{"workerSpec", Shape::kObject};
const rules::Member kUsersPodTemplate{"template", Shape::kObject};
const rules::Member kOwnTrainer{"trainer", Shape::kObject};
const rules::Member kServingNodes{"nodeNames", Shape::kList};
const std::vector<rules::Member> kOwnSettings{{"resources", Shape::kObject},
                                              {"env", Shape::kList},
                                              {"imagePullSecrets", Shape::kList},
                                              {"tolerations", Shape::kList},
                                              {"priorityClassName"}};

Schema open_state() {
  Schema open;
  open.type = Schema::Type::kObject;
  open.preserve_unknown = true;
  return open;
}

/// Describes the pod of a worker and its place.
template <typename W>
void describe_users_pod(Type<W>& t) {
  t.template field<std::string>("nodeName", &IncrementalWorker::node_name,
                                "Extension: name of the worker's node.")
      .length(0, 253)
      .pattern(kOptionalName);
  t.template field<Json>("workerSpec", &IncrementalWorker::worker_spec,
                         "Pod of the worker: a PodSpec, or {metadata, spec}.")
      .shaped(worker_spec_shape(PodText::kBare));
  t.template field<Json>("template", &IncrementalWorker::pod_template,
                         "Pod of the worker as a template, {metadata, spec}.")
      .shaped(pod_template_shape(PodText::kBare));
  describe_pod_settings(t);
  t.rule(rules::forbidden_with(kUsersPodTemplate, {kUsersPodSpec},
                               "may not be set together with workerSpec: both describe the same "
                               "pod"));
  for (const rules::Member& pod : {kUsersPodSpec, kUsersPodTemplate}) {
    t.rule(rules::forbidden_with(
        pod, kOwnSettings,
        "may not be set together with resources, env, imagePullSecrets, tolerations or "
        "priorityClassName: the pod has its own"));
  }
  for (const char* node :
       {"workerSpec.nodeName", "workerSpec.spec.nodeName", "template.spec.nodeName"})
    t.rule(rules::same(node, "nodeName", "must be the nodeName of the worker"));
  t.rule(rules::each_differs("env", "name", incremental_variables()));
}

template <typename W>
void ends_by_itself(Type<W>& t) {
  for (const std::string spec : {"workerSpec", "workerSpec.spec", "template.spec"}) {
    t.rule(rules::one_of(spec + ".restartPolicy", {"OnFailure", "Never"},
                         "must be OnFailure or Never: a round ends"));
  }
}

/// The round machine reads the settings. A CRD cannot express all of them.
std::vector<meta::StatusCause> settings_are_readable(const Json& /*old*/, const Json& object) {
  const auto settings = incremental::parse_settings(object["spec"]);
  if (settings.ok()) return {};
  const std::string& message = settings.error().message();
  return {{"FieldValueInvalid", "Invalid value: " + message,
           "spec." + message.substr(0, message.find_first_of(" :"))}};
}

/// The policies of our server, or any policy of a user's worker.
template <typename W>
void add_policy_rules(Type<W>& t) {
  for (Rule& rule : detail::edge_policy_rules()) t.rule(std::move(rule));
}

}  // namespace

const std::vector<std::string>& incremental_variables() {
  static const std::vector<std::string> names{"NAMESPACE",
                                              "JOB_KIND",
                                              "JOB_NAME",
                                              "SERVICE_NAME",
                                              "WORKER_NAME",
                                              "WORKER_ROLE",
                                              "NODE_NAME",
                                              "POD_IP",
                                              "MODEL_NAME",
                                              "MODEL_VERSION",
                                              "MODEL_PATH",
                                              "MODEL_URL",
                                              "MODEL_URLS",
                                              "BASE_MODEL_URL",
                                              "DATASET_NAME",
                                              "ORIGINAL_DATASET_URL",
                                              "TRAIN_DATASET_URL",
                                              "TRAIN_DATASET_FORMAT",
                                              "TEST_DATASET_URL",
                                              "TEST_DATASET_FORMAT",
                                              "EVAL_DATASET_URL",
                                              "EVAL_DATASET_FORMAT",
                                              "REPLAY_DATASET_URL",
                                              "REPLAY_DATASET_FORMAT",
                                              "BASELINE_MODEL_URL",
                                              "CANDIDATE_MODEL_URL",
                                              "MODEL_HOT_UPDATE",
                                              "MODEL_POLL_PERIOD_SECONDS",
                                              "HEM_NAME",
                                              "HEM_PARAMETERS",
                                              "ROUND",
                                              "ATTEMPT",
                                              "INCREMENTAL",
                                              "PARAMETERS",
                                              "VARDA_WORKER_SOCKET",
                                              "VARDA_WORKER_TOKEN_FILE"};
  return names;
}

const Json& IncrementalWorker::pod_spec() const {
  if (worker_spec.is_null()) return pod_template["spec"];
  return worker_spec.contains("spec") ? worker_spec["spec"] : worker_spec;
}

const Json& IncrementalWorker::pod_metadata() const {
  return worker_spec.is_null() ? pod_template["metadata"] : worker_spec["metadata"];
}

const std::string& IncrementalWorker::node() const {
  return node_name.empty() ? pod_spec()["nodeName"].as_string() : node_name;
}

std::vector<std::string> IncrementalLearningJobSpec::serving_nodes() const {
  if (!deploy_spec.node_names.empty()) return deploy_spec.node_names;
  const std::string& one = deploy_spec.node().empty() ? node_name : deploy_spec.node();
  return one.empty() ? std::vector<std::string>{} : std::vector<std::string>{one};
}

const std::string& IncrementalLearningJobSpec::training_node() const {
  return train_spec.node().empty() ? node_name : train_spec.node();
}

const IncrementalVersion* IncrementalLearningJobStatus::find_version(
    std::string_view wanted) const {
  const auto found = std::find_if(versions.begin(), versions.end(),
                                  [&](const auto& one) { return one.version == wanted; });
  return found == versions.end() ? nullptr : &*found;
}

const std::string& IncrementalLearningJob::annotation(std::string_view name) const {
  static const std::string none;
  const auto found = metadata.annotations.find(std::string(name));
  return found == metadata.annotations.end() ? none : found->second;
}

void IncrementalDataset::describe(Type<IncrementalDataset>& t) {
  using D = IncrementalDataset;
  t.doc("The Dataset with labelled samples, on the node of the training.");
  t.field("name", &D::name, "Name of the Dataset.")
      .required()
      .length(1, 253)
      .pattern(kRequiredName);
  t.field("group", &D::group,
          "Extension: API group of the Dataset. Required if both groups have a Dataset with this "
          "name.")
      .one_of({"edgeai.io", "sedna.io"});
  t.field("trainProb", &D::train_prob,
          "Share of the new samples that train. The others evaluate. Default: 0.8.")
      .range(0, 1);
  t.keep_unknown(&D::unknown);
  t.rule(rules::above("trainProb", 0));
}

void IncrementalTrainSpec::describe(Type<IncrementalTrainSpec>& t) {
  using S = IncrementalTrainSpec;
  t.doc("The training: when, and by which program. Without workerSpec and template: varda-train.");
  t.field("trigger", &S::trigger, "When a training starts. Default: with 100 new samples.")
      .shaped(trigger_shape());
  t.field("retry", &S::retry, "Extension: attempts of one stage.").shaped(retry_shape());
  t.field(
      "replay", &S::replay,
      "Extension: a Dataset of old samples for `trainer.continual`, on the node of the training. "
      "Samples of earlier rounds are replayed without it.");
  t.field("trainer", &S::trainer, "Extension: settings of varda-train, as in a TrainingModel.")
      .shaped(trainer_shape());
  describe_users_pod(t);
  t.keep_unknown(&S::unknown);
  ends_by_itself(t);
  for (const rules::Member& pod : {kUsersPodSpec, kUsersPodTemplate}) {
    t.rule(rules::forbidden_with(kOwnTrainer, {pod},
                                 "may not be set together with workerSpec or template"));
  }
}

void IncrementalEvalSpec::describe(Type<IncrementalEvalSpec>& t) {
  using S = IncrementalEvalSpec;
  t.doc("The comparison of the new version with the serving one.");
  t.field(
      "initialEvalModel", &S::initial_eval_model,
      "The model that candidates are compared with until a version passes. Default: the initial "
      "model.");
  t.field("dataset", &S::dataset,
          "Extension: a Dataset of frozen samples, on the node of the training.");
  t.field("gate", &S::gate, "Extension: what the new version needs to serve.").shaped(gate_shape());
  describe_users_pod(t);
  t.keep_unknown(&S::unknown);
  ends_by_itself(t);
}

void IncrementalDeployModel::describe(Type<IncrementalDeployModel>& t) {
  using M = IncrementalDeployModel;
  t.doc("The Model that gets the accepted versions.");
  t.field("name", &M::name, "Name of the Model.").required().length(1, 63).pattern(kRequiredName);
  t.field("group", &M::group, "Extension: API group of the Model. Default: edgeai.io.")
      .one_of({"edgeai.io", "sedna.io"});
  t.field("hotUpdateEnabled", &M::hot_update_enabled,
          "The user's worker loads new versions itself: MODEL_HOT_UPDATE. Otherwise a new pod "
          "follows. Varda's server always loads new versions itself.");
  t.field("pollPeriodSeconds", &M::poll_period_seconds,
          "Time between two looks of the user's worker for a new version: "
          "MODEL_POLL_PERIOD_SECONDS.")
      .defaulted()
      .format("int64")
      .range(1, 86'400);
  t.keep_unknown(&M::unknown);
}

void IncrementalDeploySpec::describe(Type<IncrementalDeploySpec>& t) {
  using S = IncrementalDeploySpec;
  t.doc(
      "The service. Without workerSpec and template, varda-serve serves on each node of "
      "nodeNames.");
  t.field("model", &S::model, "The Model that gets the accepted versions.").required();
  t.field("trigger", &S::trigger,
          "What the new version needs to serve, as Sedna has it: a condition on a metric. A metric "
          "with the end _delta is a difference to the serving version.")
      .shaped(deploy_trigger_shape());
  t.field("hardExampleMining", &S::hard_example_mining,
          "Policy that finds hard requests. Varda's server keeps them, for labelling.");
  t.field("nodeNames", &S::node_names,
          "Extension: nodes that serve. A new version reaches one after another.")
      .items_max(S::kNodesMax)
      .each_length(1, 253)
      .each_pattern(kRequiredName);
  t.field("servingPort", &S::serving_port, "Extension: port of Varda's server. Default: 8080.")
      .format("int32")
      .range(0, 65'535);
  t.field("samples", &S::samples,
          "Extension: limits of the samples that Varda's server keeps on the node.")
      .shaped(kept_samples_shape());
  t.field("pseudoLabels", &S::pseudo_labels,
          "Extension: answers of a bigger model label kept samples.")
      .shaped(pseudo_labels_shape());
  t.field("trial", &S::trial, "Extension: a new version answers a part of the requests first.")
      .shaped(trial_shape());
  t.field("rollback", &S::rollback,
          "Extension: when a new version goes back to the version before.")
      .shaped(rollback_shape());
  t.field("rollout", &S::rollout, "Extension: the way of a new version to several nodes.")
      .shaped(rollout_shape());
  describe_users_pod(t);
  t.keep_unknown(&S::unknown);
  for (const std::string spec : {"workerSpec", "workerSpec.spec", "template.spec"}) {
    t.rule(rules::one_of(spec + ".restartPolicy", {"Always"},
                         "must be Always: the worker answers requests"));
  }
  for (const rules::Member& pod : {kUsersPodSpec, kUsersPodTemplate}) {
    for (const rules::Member& own :
         {kServingNodes, rules::Member{"servingPort", Shape::kNumber},
          rules::Member{"samples", Shape::kObject}, rules::Member{"pseudoLabels", Shape::kObject},
          rules::Member{"trial", Shape::kObject}}) {
      t.rule(rules::forbidden_with(
          own, {pod}, "needs Varda's server: may not be set together with workerSpec or template"));
    }
  }
  t.rule(rules::forbidden_with(kServingNodes, {{"nodeName"}},
                               "may not be set together with nodeName"));
  add_policy_rules(t);
}

void IncrementalLearningJobSpec::describe(Type<IncrementalLearningJobSpec>& t) {
  using S = IncrementalLearningJobSpec;
  t.doc("The samples, the model, the training, the comparison, and the service.");
  t.field("dataset", &S::dataset, "The Dataset with labelled samples.").required();
  t.field("initialModel", &S::initial_model, "The model that serves first.").required();
  t.field("trainSpec", &S::train_spec, "The training.").required();
  t.field("evalSpec", &S::eval_spec, "The comparison of the new version with the serving one.");
  t.field("deploySpec", &S::deploy_spec, "The service.").required();
  t.field("outputDir", &S::output_dir,
          "Sedna's directory of results. Varda accepts it; results go to the registry.")
      .length(0, 1024);
  t.field("credentialName", &S::credential_name,
          "Secret with the credentials for the archive of the initial model.")
      .length(0, 253)
      .pattern(kOptionalName);
  t.field("nodeName", &S::node_name,
          "Extension: node of the workers that name no node. Default for the training: the node of "
          "the dataset. Default for the service: the node of the training.")
      .length(0, 253)
      .pattern(kOptionalName);
  t.field("suspend", &S::suspend,
          "Extension: true starts no more rounds. The present round ends, and the service "
          "continues.");
  t.keep_unknown(&S::unknown);
}

void IncrementalVersion::describe(Type<IncrementalVersion>& t) {
  using V = IncrementalVersion;
  t.doc("A version of the model.");
  t.field("version", &V::version, "Name of the version.").required().length(1, 253);
  t.field("url", &V::url, "URL of the archive.").length(0, 2048);
  t.field("sha256", &V::sha256, "SHA-256 of the archive.").length(0, 64);
  t.field("bytes", &V::bytes, "Size of the archive.").format("int64");
  t.field("round", &V::round, "The round that made it. 0: the initial model.")
      .always()
      .format("int64");
  t.field("reportUrl", &V::report_url, "URL of the training's report.").length(0, 2048);
  t.field("metrics", &V::metrics, "Metrics of the comparison, as text.")
      .items_max(ModelMetricsStatus::kMetricsMax)
      .atomic();
  t.keep_unknown(&V::unknown);
}

void IncrementalRound::describe(Type<IncrementalRound>& t) {
  using R = IncrementalRound;
  t.doc("The end of one round.");
  t.field("round", &R::round, "Number of the round, from 1.").required().format("int64");
  t.field("outcome", &R::outcome, "Accepted, Refused or Failed.").length(0, 63);
  t.field("reason", &R::reason, "Reason, one word.").length(0, 128);
  t.field("message", &R::message, "The verdict with its numbers.").length(0, 2048);
  t.field("trigger", &R::trigger, "The reason for the round.").length(0, 2048);
  t.field("version", &R::version, "The version that the round made.").length(0, 253);
  t.field("samples", &R::samples, "Number of new samples in the round.").format("int64");
  t.field("gain", &R::gain, "Difference of the gate's metric, as text.").length(0, 32);
  t.field("rolledBack", &R::rolled_back, "The version served, or was on trial, and left again.");
  t.field("startTime", &R::start_time, "Time when the trigger fired.").format("date-time");
  t.field("endTime", &R::end_time, "Time of the end.").format("date-time");
  t.keep_unknown(&R::unknown);
}

void IncrementalStep::describe(Type<IncrementalStep>& t) {
  using S = IncrementalStep;
  t.doc("One step of a round.");
  t.field("round", &S::round, "Number of the round.").required().format("int64");
  t.field("stage", &S::stage, "Train, Eval or Deploy.").length(0, 63);
  t.field("state", &S::state, "Waiting, Ready, Starting, Running, Completed or Failed.")
      .length(0, 63);
  t.field("reason", &S::reason, "Reason, one word.").length(0, 128);
  t.field("time", &S::time, "Time of the step.").format("date-time");
}

void IncrementalSamples::describe(Type<IncrementalSamples>& t) {
  using S = IncrementalSamples;
  t.doc("Numbers of samples.");
  t.field("total", &S::total, "Samples of the Dataset.").always().format("int64");
  t.field("consumed", &S::consumed, "Samples of the rounds that were accepted or refused.")
      .always()
      .format("int64");
  t.field("new", &S::fresh, "Samples that no such round has used.").always().format("int64");
  t.field("pending", &S::pending, "Samples on the serving nodes that wait for a label.")
      .always()
      .format("int64");
}

void IncrementalServing::describe(Type<IncrementalServing>& t) {
  using S = IncrementalServing;
  t.doc("A node that serves.");
  t.field("node", &S::node, "Name of the node.").required().length(1, 253);
  t.field("name", &S::name, "Name of the InferenceModel, or of the Pod.").length(0, 253);
  t.field("version", &S::version, "The version that serves.").length(0, 253);
  t.field("url", &S::url, "URL of the service.").length(0, 2048);
  t.field("ready", &S::ready, "true if the service answers.").always();
  t.field("restarts", &S::restarts, "Restarts of the server.").format("int64");
  t.field("restartsBefore", &S::restarts_before,
          "Restarts of the server before the version served.")
      .format("int64");
  t.field("message", &S::message, "The reason why the service is not Ready.").length(0, 4096);
  t.keep_unknown(&S::unknown);
}

void IncrementalSummary::describe(Type<IncrementalSummary>& t) {
  t.doc("Texts for tables.");
  t.field("stage", &IncrementalSummary::stage, "Stage and state of the round.").length(0, 63);
  t.field("samples", &IncrementalSummary::samples, "New samples, and all samples.").length(0, 63);
  t.field("gain", &IncrementalSummary::gain, "Gain of the last comparison.").length(0, 63);
}

void IncrementalLearningJobStatus::describe(Type<IncrementalLearningJobStatus>& t) {
  using S = IncrementalLearningJobStatus;
  t.doc("The observed state.");
  t.field("conditions", &S::conditions,
          "Ready: every node serves. Train, Eval, Deploy: state of the stage, as the reason. "
          "Evaluated: the verdict on the last comparison. Suspended: spec.suspend is true. The "
          "guide lists the reasons.")
      .items_max(16)
      .list_map({"type"});
  t.field("observedGeneration", &S::observed_generation,
          "metadata.generation that this status describes.")
      .format("int64");
  t.field("stage", &S::stage, "Train, Eval or Deploy.").length(0, 63);
  t.field("state", &S::state, "Waiting, Ready, Starting, Running, Completed or Failed.")
      .length(0, 63);
  t.field("round", &S::round, "The present or next round, from 1.").always().format("int64");
  t.field("attempt", &S::attempt, "The present attempt of the stage.").format("int64");
  t.field("node", &S::node, "Node of the training. It stays there.").length(0, 253);
  t.field("version", &S::version, "The version that serves.").length(0, 253);
  t.field("base", &S::base, "The initial model of this job.");
  t.field("baseline", &S::baseline,
          "The archive of evalSpec.initialEvalModel, until a version passes.");
  t.field("versions", &S::versions,
          "The last versions, oldest first: the initial model, and those of accepted rounds and of "
          "the present one.")
      .items_max(S::kVersionsMax)
      .atomic();
  t.field("serving", &S::serving, "The nodes that serve.")
      .items_max(IncrementalDeploySpec::kNodesMax)
      .atomic();
  t.field("samples", &S::samples, "Numbers of samples.").always();
  t.field("rounds", &S::rounds, "Ends of at most 16 rounds.").items_max(S::kRoundsMax).atomic();
  t.field("history", &S::history, "At most 24 steps of rounds.").items_max(S::kHistoryMax).atomic();
  t.field("refused", &S::refused,
          "The last refused rounds. No later training repeats their samples.")
      .items_max(S::kRefusedMax)
      .atomic();
  t.field("machine", &S::machine, "State of the rounds. Only the operator reads it.")
      .shaped(open_state());
  t.field("pod", &S::pod, "The Pod of the present attempt.").length(0, 253);
  t.field("summary", &S::summary, "Texts for tables.");
  t.keep_unknown(&S::unknown);
}

void IncrementalLearningJob::describe(Type<IncrementalLearningJob>& t) {
  using J = IncrementalLearningJob;
  t.doc("A served model that learns from new samples.");
  t.field("metadata", &J::metadata, "Standard object metadata.");
  t.field("spec", &J::spec, "The samples, the model, the training, the comparison, the service.")
      .required();
  t.field("status", &J::status, "The observed state. Only the operator writes it.");
  t.keep_unknown(&J::unknown);
  t.rule(rules::name_is_label(kNameMax, "because labels and names of its children contain it"));
}

const Kind& IncrementalLearningJob::kind() {
  static const Kind kind{
      .resource = {"sedna.io", "v1alpha1", "IncrementalLearningJob", "incrementallearningjobs",
                   true},
      .singular = "incrementallearningjob",
      .page = "",
      .short_names = {"il"},
      .columns =
          {
              {"Stage", "string", ".status.summary.stage", "Stage and state of the round"},
              {"Round", "integer", ".status.round", "The present or next round"},
              {"Version", "string", ".status.version", "The version that serves"},
              {"Samples", "string", ".status.summary.samples", "New samples, and all samples"},
              {"Gain", "string", ".status.summary.gain", "Gain of the last comparison"},
              {"Node", "string", ".status.node", "Node of the training", 1},
              {"Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status",
               "Whether every node serves", 1},
              {"Verdict", "string", ".status.conditions[?(@.type==\"Evaluated\")].message",
               "The verdict on the last comparison", 1},
              {"Age", "date", ".metadata.creationTimestamp", ""},
          },
      .scale = {},
      .notes =
          {
              "Manifests for Sedna apply. A worker's pod is in `template` or in `workerSpec`, and "
              "its node in\n  `nodeName` or in the pod's own `nodeName`. A container needs no "
              "name.",
              "Workers without a pod, `nodeName`, `nodeNames`, `trainer`, `replay`, `retry`, "
              "`gate`, "
              "`samples`,\n  `pseudoLabels`, `trial`, `rollback`, `rollout`, `servingPort`, "
              "`suspend`,\n  `evalSpec.dataset` and the pod settings are extensions.",
              "`outputDir` is accepted. Results go to the registry whatever it says.",
          },
      .schema = &type_info<IncrementalLearningJob>().schema,
      .native = settings_are_readable,
  };
  return kind;
}

Result<IncrementalLearningJob> IncrementalLearningJob::from_json(const Json& object) {
  return read_object<IncrementalLearningJob>(object);
}
Json IncrementalLearningJobSpec::to_json() const { return write_part(*this); }
Json IncrementalLearningJobStatus::to_json() const { return write_part(*this); }
Json IncrementalLearningJob::to_json() const { return write_object(*this); }

}  // namespace varda::api
