#include "api/ai/training_model.h"

#include <utility>

#include "api/ai/describe_pod_settings.h"
#include "api/ai/trainer_shape.h"
#include "api/describe.h"
#include "api/period.h"
#include "api/rule.h"
#include "api/sedna/pod_shape.h"
#include "api/version_name.h"

namespace varda::api {

namespace {

using rules::Shape;

constexpr std::string_view kArchiveUrl = "^((https?|s3)://[^/ ]+|file:///)[^ ]*$";
constexpr std::string_view kArchiveDigest = "^[0-9a-f]{64}$";
constexpr std::string_view kBucketUrl = "^(s3://[^/ ?#:@]+(/[^ ?#]*)?)?$";
constexpr std::string_view kObjectName = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$";
constexpr std::string_view kObjectNameOrEmpty = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$";
constexpr std::string_view kSelectorValue = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
constexpr std::string_view kVariableName = "^[A-Za-z_][A-Za-z0-9_.-]*$";

const rules::Member kTrainer{"trainer", Shape::kObject};
const rules::Member kImage{"image"};
const rules::Member kPodSpec{"workerSpec", Shape::kObject};
const rules::Member kPodTemplate{"template", Shape::kObject};
const rules::Member kInitialModel{"initialModel", Shape::kObject};
const rules::Member kDataset{"dataset", Shape::kObject};
const rules::Member kEvaluation{"evaluation", Shape::kObject};
const rules::Member kScripts{"scripts", Shape::kObject};
const rules::Member kTargetVersion{"targetVersion"};
const rules::Member kManifest{"manifest", Shape::kList};

/// The member is part of the kind, but no part of Varda acts on it yet.
Rule unsupported(const rules::Member& member, std::string_view why) {
  return rules::forbidden_with(member, {member}, why);
}

Rule hold_out_is_a_share() {
  static constexpr std::string_view kWhat = "must be greater than 0 and less than 1";
  Rule rule;
  rule.cel = "!has(self.holdOut) || (self.holdOut > 0.0 && self.holdOut < 1.0)";
  rule.message = std::string(kWhat);
  rule.reason = "FieldValueInvalid";
  rule.field_path = ".holdOut";
  rule.check = [](const Json& self) -> std::vector<Violation> {
    const Json& value = self["holdOut"];
    if (!value.is_number() || (value.as_double() > 0 && value.as_double() < 1)) return {};
    return {rules::invalid(".holdOut", value, kWhat)};
  };
  return rule;
}

/// Without a node the cluster chooses the place, which suits the cloud layer only.
Rule run_at_the_edge_has_a_node() {
  static constexpr std::string_view kWhy = "a run at the edge needs a nodeName or a nodeSelector";
  Rule rule;
  rule.cel =
      "(has(self.deployToLayer) && self.deployToLayer == 'cloud') || (has(self.nodeName) && "
      "self.nodeName != '') || (has(self.nodeSelector) && size(self.nodeSelector) > 0)";
  rule.message = std::string(kWhy);
  rule.reason = "FieldValueRequired";
  rule.field_path = ".nodeName";
  rule.check = [](const Json& self) -> std::vector<Violation> {
    const auto is_set = [&self](const char* member) {
      const Json& value = self[member];
      if (value.is_string()) return !value.as_string().empty();
      return value.is_object() || value.is_array() ? !value.empty() : !value.is_null();
    };
    if (self["deployToLayer"].as_string() == "cloud" || is_set("nodeName") ||
        is_set("nodeSelector"))
      return {};
    return {{"FieldValueRequired", ".nodeName", "Required value: " + std::string(kWhy)}};
  };
  return rule;
}

/// A default makes registry true, so url alone is a contradiction.
Rule result_has_one_place() {
  static constexpr std::string_view kWhy =
      "must be false with url and true without url: the result has one place";
  Rule rule;
  rule.cel = "(has(self.registry) && !self.registry) == (has(self.url) && self.url != '')";
  rule.message = std::string(kWhy);
  rule.reason = "FieldValueInvalid";
  rule.field_path = ".registry";
  rule.check = [](const Json& self) -> std::vector<Violation> {
    const Json &registry = self["registry"], &url = self["url"];
    if ((!registry.is_null() && !registry.is_bool()) || (!url.is_null() && !url.is_string()))
      return {};
    if ((registry.is_bool() && !registry.as_bool()) == !url.as_string().empty()) return {};
    return {rules::invalid(".registry", registry, kWhy)};
  };
  return rule;
}

template <typename B>
void is_period(B builder) {
  builder.int_or_string()
      .range(0, kPeriodSecondsMax)
      .pattern(kPeriodPattern)
      .length(0, kPeriodLengthMax);
}

}  // namespace

const std::vector<std::string>& training_variables() {
  static const std::vector<std::string> names{"NAMESPACE",
                                              "JOB_KIND",
                                              "SERVICE_NAME",
                                              "WORKER_NAME",
                                              "WORKER_ROLE",
                                              "NODE_NAME",
                                              "POD_IP",
                                              "MODEL_NAME",
                                              "MODEL_VERSION",
                                              "MODEL_PATH",
                                              "MODEL_URL",
                                              "BASE_MODEL_URL",
                                              "TRAIN_DATASET_URL",
                                              "TRAIN_DATASET_FORMAT",
                                              "EVAL_DATASET_URL",
                                              "EVAL_DATASET_FORMAT",
                                              "PARAMETERS",
                                              "TRAINING",
                                              "VARDA_WORKER_SOCKET",
                                              "VARDA_WORKER_TOKEN_FILE"};
  return names;
}

std::int64_t TrainingModelSpec::checkpoint_seconds() const {
  const std::int64_t seconds = period_seconds(checkpoint.every);
  return seconds > 0 ? seconds : TrainingCheckpoint::kDefaultSeconds;
}

std::int64_t TrainingModelSpec::deadline_seconds() const { return period_seconds(active_deadline); }

double TrainingModelSpec::hold_out() const {
  return evaluation && evaluation->hold_out ? *evaluation->hold_out
                                            : TrainingEvaluation::kDefaultHoldOut;
}

const Json& TrainingModelSpec::pod_spec() const {
  if (worker_spec.is_null()) return pod_template["spec"];
  return worker_spec.contains("spec") ? worker_spec["spec"] : worker_spec;
}

const Json& TrainingModelSpec::pod_metadata() const {
  return worker_spec.is_null() ? pod_template["metadata"] : worker_spec["metadata"];
}

bool TrainingModelStatus::ended() const {
  for (const char* type : {"Complete", "Failed"}) {
    const meta::Condition* condition = meta::find_condition(conditions, type);
    if (condition != nullptr && condition->status == "True") return true;
  }
  return false;
}

namespace {

/// The rules of archives and of the version among them.
template <typename T>
void has_archives(Type<T>& t) {
  t.rule(rules::when_any_set(
      {kManifest}, rules::required(kTargetVersion, "targetVersion is required with a manifest")));
  t.rule(rules::each_matches("manifest", "version", kVersionPattern, kVersionExpected));
  t.rule(rules::each_differs("manifest", "version", {std::string(kVersionForbidden)}));
  t.rule(rules::each_unique("manifest", "version"));
  t.rule(rules::each_matches("manifest", "downloadURL", kArchiveUrl,
                             "must be an http, https, s3 or file URL"));
  t.rule(rules::each_matches("manifest", "sha256sum", kArchiveDigest,
                             "must be 64 lower case hexadecimal digits"));
  t.rule(rules::listed("targetVersion", "manifest", "version"));
}

}  // namespace

void TrainingInitialModel::describe(Type<TrainingInitialModel>& t) {
  using M = TrainingInitialModel;
  t.doc("The weights to start from: a model by name, or archives.");
  t.field("name", &M::name, "Name of a Model or InferenceModel of the same namespace.")
      .length(0, 253)
      .pattern(kObjectNameOrEmpty);
  t.field("kind", &M::kind,
          "Model or InferenceModel. Default: the Model with this name, else the InferenceModel.")
      .one_of({"Model", "InferenceModel"});
  t.field("group", &M::group,
          "API group of a Model. Required if both groups have a Model with this name.")
      .one_of({"edgeai.io", "sedna.io"});
  t.field("version", &M::version,
          "The version to start from. The run waits until the model has it. Default: the present "
          "version.")
      .length(0, 63);
  t.field("manifest", &M::manifest, "Versioned archives, instead of name.").items_max(16);
  t.field("targetVersion", &M::target_version, "The version to start from, of the manifest.")
      .length(0, 253);
  t.keep_unknown(&M::unknown);
  t.rule(rules::any_required({{"name"}, kManifest}, "either name or manifest is required"));
  for (const char* member : {"name", "kind", "group", "version"}) {
    t.rule(rules::forbidden_with({member}, {kManifest, kTargetVersion},
                                 "may not be set together with manifest and targetVersion"));
  }
  t.rule(rules::matches_when_set("version", kVersionPattern, kVersionForbidden, kVersionExpected));
  has_archives(t);
}

void TrainingScripts::describe(Type<TrainingScripts>& t) {
  using S = TrainingScripts;
  t.doc("The program of your own trainer, as an archive that the node mounts at /code.");
  t.field("manifest", &S::manifest, "Versioned archives.").required().items_max(16);
  t.field("targetVersion", &S::target_version, "The version to mount, of the manifest.")
      .length(0, 253);
  t.keep_unknown(&S::unknown);
  t.rule(rules::any_required({kManifest}, "an archive is required"));
  has_archives(t);
}

void TrainingDataset::describe(Type<TrainingDataset>& t) {
  t.doc(
      "A Dataset of the same namespace, on the node of the run. Without a "
      "node: behind a URL, or in a PersistentVolumeClaim.");
  t.field("name", &TrainingDataset::name, "Name of the Dataset.")
      .required()
      .length(1, 253)
      .pattern(kObjectName);
  t.field("group", &TrainingDataset::group,
          "API group of the Dataset. Required if both groups have a Dataset with this name.")
      .one_of({"edgeai.io", "sedna.io"});
  t.keep_unknown(&TrainingDataset::unknown);
}

void TrainingEvaluation::describe(Type<TrainingEvaluation>& t) {
  using E = TrainingEvaluation;
  t.doc("The samples that measure the trained model. Default: holdOut 0.1.");
  t.field("dataset", &E::dataset, "A Dataset of its own.");
  t.field("holdOut", &E::hold_out, "Share of the training samples, which the training leaves out.")
      .range(0, 1);
  t.keep_unknown(&E::unknown);
  t.rule(rules::forbidden_with(kDataset, {{"holdOut", Shape::kNumber}},
                               "may not be set together with holdOut"));
  t.rule(hold_out_is_a_share());
}

void TrainingParameter::describe(Type<TrainingParameter>& t) {
  t.doc("One parameter, as text.");
  t.field("key", &TrainingParameter::key, "Name of the parameter and of its variable.")
      .required()
      .length(1, 253)
      .pattern(kVariableName);
  t.field("value", &TrainingParameter::value, "Value of the parameter.").required().length(0, 4096);
  t.keep_unknown(&TrainingParameter::unknown);
}

void TrainingOutput::describe(Type<TrainingOutput>& t) {
  using O = TrainingOutput;
  t.doc("The place of the result.");
  t.field("version", &O::version,
          "The version of the Model. Default: the first 12 digits of the file's SHA-256.")
      .length(0, 63);
  t.field("registry", &O::registry,
          "The result goes to the registry of the operator. Must be false with url.")
      .defaulted();
  t.field("url", &O::url,
          "Bucket for the result instead of the registry: s3://BUCKET or s3://BUCKET/PREFIX. The "
          "node of the run uploads the result.")
      .length(0, 2048)
      .pattern(kBucketUrl);
  t.field("credentials", &O::credentials,
          "The Secret with the access key for url. Only the node of the run gets it. Without url: "
          "the Secret with which nodes read the result from the registry. Either becomes the "
          "credentialName of the Model.");
  t.keep_unknown(&O::unknown);
  t.rule(rules::matches_when_set("version", kVersionPattern, kVersionForbidden, kVersionExpected));
  t.rule(result_has_one_place());
}

void TrainingCheckpoint::describe(Type<TrainingCheckpoint>& t) {
  t.doc("Checkpoints of the trainer.");
  is_period(t.field("every", &TrainingCheckpoint::every,
                    "Time between two checkpoints: seconds, or a time such as 90s or 5m. Default: "
                    "60s."));
  t.keep_unknown(&TrainingCheckpoint::unknown);
}

void TrainingModelSpec::describe(Type<TrainingModelSpec>& t) {
  using S = TrainingModelSpec;
  t.doc("The model to train, its data, its trainer, and its place.");
  t.field("modelName", &S::model_name, "Name of the Model (edgeai.io) that gets a new version.")
      .required()
      .length(1, 63)
      .pattern(kObjectName);
  t.field(
       "deployToLayer", &S::deploy_to_layer,
       "edge: one Pod on the node that nodeName or nodeSelector selects. cloud: the node must be "
       "of the cloud layer; without a node a Job of the cluster trains.")
      .defaulted()
      .one_of({"cloud", "edge"});
  t.field("nodeSelector", &S::node_selector, "Labels of the node. Exactly one node must match.")
      .items_max(32)
      .each_length(0, 63)
      .each_pattern(kSelectorValue);
  t.field("nodeName", &S::node_name,
          "Name of the node. If nodeSelector is set, the node must match it too.")
      .length(0, 253)
      .pattern(kObjectNameOrEmpty);
  t.field("initialModel", &S::initial_model,
          "The weights to start from. Required with trainer. The run keeps the version that it "
          "started from.");
  t.field("dataset", &S::dataset, "The samples for the training. Required with trainer.");
  t.field("evaluation", &S::evaluation, "The samples that measure the trained model.");
  t.field(
       "trainer", &S::trainer,
       "Varda's trainer for ONNX models, varda-train. Alternatives: image, workerSpec, template.")
      .shaped(trainer_shape());
  t.field("image", &S::image, "Image of your own trainer.").length(0, 1024).pattern("^[^ ]*$");
  t.field("workerSpec", &S::worker_spec, "Pod of your own trainer: a PodSpec, or {metadata, spec}.")
      .shaped(worker_spec_shape(PodText::kBare));
  t.field("template", &S::pod_template,
          "Pod of your own trainer as a template, {metadata, spec}. Alternative to workerSpec.")
      .shaped(pod_template_shape(PodText::kBare));
  t.field("scripts", &S::scripts,
          "The program of your own trainer: an archive, mounted read-only at /code.");
  t.field("parameters", &S::parameters,
          "Parameters of your own trainer: each is a variable, and PARAMETERS has all as JSON.")
      .items_max(128)
      .list_map({"key"});
  t.field("output", &S::output, "The place of the result.");
  t.field("checkpoint", &S::checkpoint, "Checkpoints of the trainer.");
  is_period(t.field("activeDeadline", &S::active_deadline,
                    "Time limit of the run: seconds, or a time such as 90m or 1d12h. Default: "
                    "none."));
  t.field("backoffLimit", &S::backoff_limit,
          "Number of failed attempts after which the run is repeated. One more ends it.")
      .defaulted()
      .format("int32")
      .range(0, 1000);
  t.field("suspend", &S::suspend,
          "true removes the Pod and keeps the checkpoint. false continues the run.");
  describe_pod_settings(t);
  t.keep_unknown(&S::unknown);

  t.rule(rules::any_required(
      {kTrainer, kImage, kPodSpec, kPodTemplate},
      "exactly one of trainer, image, workerSpec and template says what trains"));
  constexpr std::string_view kOnlyOne =
      "exactly one of trainer, image, workerSpec and template says what trains";
  t.rule(rules::forbidden_with(kImage, {kTrainer}, kOnlyOne));
  t.rule(rules::forbidden_with(kPodSpec, {kTrainer, kImage}, kOnlyOne));
  t.rule(rules::forbidden_with(kPodTemplate, {kTrainer, kImage, kPodSpec}, kOnlyOne));
  t.rule(rules::when_any_set(
      {kTrainer}, rules::required(kInitialModel, "initialModel is required with trainer")));
  t.rule(rules::when_any_set({kTrainer},
                             rules::required(kDataset, "dataset is required with trainer")));
  t.rule(rules::forbidden_with({"parameters", Shape::kList}, {kTrainer},
                               "may not be set together with trainer, which has its own settings"));
  t.rule(rules::unless_any_set(
      {kDataset}, rules::forbidden_with(kEvaluation, {kEvaluation}, "needs a dataset")));
  t.rule(run_at_the_edge_has_a_node());
  t.rule(rules::forbidden_with(kScripts, {kTrainer},
                               "may not be set together with trainer, which is the program"));
  t.rule(rules::each_differs("parameters", "key", training_variables()));
  t.rule(rules::each_differs("env", "name", training_variables()));
  for (const rules::Member& pod : {kPodSpec, kPodTemplate}) {
    t.rule(rules::forbidden_with(
        pod,
        {{"resources", Shape::kObject},
         {"env", Shape::kList},
         {"imagePullSecrets", Shape::kList},
         {"tolerations", Shape::kList},
         {"priorityClassName"}},
        "may not be set together with resources, env, imagePullSecrets, tolerations or "
        "priorityClassName: the pod has its own"));
  }
  for (const std::string spec : {"workerSpec", "workerSpec.spec", "template.spec"}) {
    t.rule(rules::one_of(spec + ".restartPolicy", {"OnFailure", "Never"},
                         "must be OnFailure or Never: a run ends"));
    t.rule(unsupported({spec + ".nodeName"}, "may not be set: spec.nodeName names the node"));
  }
}

void TrainingBase::describe(Type<TrainingBase>& t) {
  using B = TrainingBase;
  t.doc("Files of this run. A later version of the model does not change the run.");
  t.field("requested", &B::requested, "Digest of the member of the spec that led to this choice.")
      .length(0, 64);
  t.field("kind", &B::kind, "Model or InferenceModel. Absent: a manifest of the spec.")
      .length(0, 63);
  t.field("group", &B::group, "API group of a Model.").length(0, 253);
  t.field("name", &B::name, "Name of the model.").length(0, 253);
  t.field("archive", &B::archive, "The version and its file.");
  t.keep_unknown(&B::unknown);
}

void TrainingProgress::describe(Type<TrainingProgress>& t) {
  using P = TrainingProgress;
  t.doc("Progress of the present attempt, as the node last reported it.");
  t.field("epoch", &P::epoch, "The present epoch, from 1.").format("int64");
  t.field("epochs", &P::epochs, "Number of epochs.").format("int64");
  t.field("step", &P::step, "Finished steps.").format("int64");
  t.field("steps", &P::steps, "Number of steps.").format("int64");
  t.field("loss", &P::loss, "Mean loss of the last steps, as text.").length(0, 32);
  t.field("samplesPerSecond", &P::samples_per_second, "Speed, as text.").length(0, 32);
  t.field("remaining", &P::remaining, "Estimated time left, such as 1m20s.").length(0, 32);
  t.field("updateTime", &P::update_time, "Time of the last change of the figures.")
      .format("date-time");
}

void TrainingEpoch::describe(Type<TrainingEpoch>& t) {
  t.doc("Results of one epoch.");
  t.field("epoch", &TrainingEpoch::epoch, "Number of the epoch, from 1.")
      .required()
      .format("int64");
  t.field("loss", &TrainingEpoch::loss, "Mean loss of the training, as text.").length(0, 32);
  t.field("metrics", &TrainingEpoch::metrics, "Metrics of the evaluation, as text.")
      .items_max(16)
      .each_length(0, 32);
}

void TrainingProduced::describe(Type<TrainingProduced>& t) {
  using P = TrainingProduced;
  t.doc("The result of the run.");
  t.field("version", &P::version, "The version of the Model.").length(0, 63);
  t.field("sha256", &P::sha256, "SHA-256 of the file.").length(0, 64);
  t.field("url", &P::url, "URL of the file in the registry or the bucket.").length(0, 2048);
  t.field("bytes", &P::bytes, "Size of the file.").format("int64");
  t.field("reportUrl", &P::report_url,
          "URL of the run's report for people, an HTML file. Absent: there is none.")
      .length(0, 2048);
}

void TrainingAttempts::describe(Type<TrainingAttempts>& t) {
  t.doc("Attempts of former pods.");
  t.field("attempts", &TrainingAttempts::attempts, "Number of attempts.").format("int64");
  t.field("failed", &TrainingAttempts::failed, "Number of failed attempts.").format("int64");
}

void TrainingSummary::describe(Type<TrainingSummary>& t) {
  t.doc("Texts for tables.");
  t.field("progress", &TrainingSummary::progress, "Epoch and share of the steps.").length(0, 63);
  t.field("metric", &TrainingSummary::metric, "The main metric.").length(0, 63);
}

void TrainingModelStatus::describe(Type<TrainingModelStatus>& t) {
  using S = TrainingModelStatus;
  t.doc("The observed state.");
  t.field("phase", &S::phase,
          "Pending, Fetching, Training, Evaluating, Uploading, Complete, Failed or Suspended.")
      .length(0, 63);
  t.field("conditions", &S::conditions,
          "Running: the trainer runs. Suspended: spec.suspend is true. Complete: the Model has the "
          "result. Failed: the run ended without a result. The guide lists the reasons.")
      .items_max(16)
      .list_map({"type"});
  t.field("observedGeneration", &S::observed_generation,
          "metadata.generation that this status describes.")
      .format("int64");
  t.field("node", &S::node, "The node of the run.").length(0, 253);
  t.field("pod", &S::pod, "The Pod of the last attempt.").length(0, 253);
  t.field("podUid", &S::pod_uid, "UID of that Pod.").length(0, 63);
  t.field("base", &S::base, "The initial model of this run.");
  t.field("scripts", &S::scripts, "The archive of spec.scripts of this run.");
  t.field("data", &S::data, "The file of the dataset, of a run without a node.");
  t.field("evaluationData", &S::evaluation_data,
          "The file of the evaluation's dataset, of a run without a node.");
  t.field("progress", &S::progress, "Progress of the present attempt.");
  t.field("metrics", &S::metrics, "Metrics of the evaluation, as text.")
      .items_max(S::kMetricsMax)
      .list_map({"key"});
  t.field("history", &S::history, "Results of at most 32 epochs.")
      .items_max(S::kHistoryMax)
      .list_map({"epoch"});
  t.field("attempts", &S::attempts, "Number of started attempts.").always().format("int64");
  t.field("failed", &S::failed, "Number of failed attempts.").always().format("int64");
  t.field("earlier", &S::earlier, "Attempts of former pods.");
  t.field("startTime", &S::start_time,
          "Time when the Pod was created, since the run was last suspended.")
      .format("date-time");
  t.field("completionTime", &S::completion_time, "Time when the run ended.").format("date-time");
  t.field("produced", &S::produced, "The result of the run.");
  t.field("datasetFingerprint", &S::dataset_fingerprint, "Identifier of the trained data.")
      .length(0, 128);
  t.field("summary", &S::summary, "Texts for tables.");
  t.keep_unknown(&S::unknown);
}

void TrainingModel::describe(Type<TrainingModel>& t) {
  using T = TrainingModel;
  t.doc(
      "One training run on a node or in the cluster, with a new version of a Model as its result.");
  t.field("metadata", &T::metadata, "Standard object metadata.");
  t.field("spec", &T::spec, "The model to train, its data, its trainer, and its place.").required();
  t.field("status", &T::status, "The observed state. Only the operator writes it.");
  t.keep_unknown(&T::unknown);
  t.rule(rules::name_is_label(T::kNameMax, "because labels of the pod have the same value"));
}

const Kind& TrainingModel::kind() {
  static const Kind kind{
      .resource = {"ai.kubeedge.io", "v1alpha1", "TrainingModel", "trainingmodels", true},
      .singular = "trainingmodel",
      .page = "",
      .short_names = {"tm"},
      .columns =
          {
              {"Model", "string", ".spec.modelName", "Name of the Model"},
              {"Layer", "string", ".spec.deployToLayer", "cloud or edge"},
              {"Node", "string", ".status.node", "The node of the run"},
              {"Phase", "string", ".status.phase", "Phase of the run"},
              {"Progress", "string", ".status.summary.progress", "Epoch and share of the steps"},
              {"Loss", "string", ".status.progress.loss", "Mean loss of the last steps"},
              {"Metric", "string", ".status.summary.metric", "The main metric"},
              {"Version", "string", ".status.produced.version", "The version of the Model", 1},
              {"Attempts", "integer", ".status.attempts", "Number of started attempts", 1},
              {"Reason", "string", ".status.conditions[?(@.type==\"Running\")].reason",
               "Reason of the condition Running", 1},
              {"Message", "string", ".status.conditions[?(@.type==\"Running\")].message",
               "Human-readable explanation", 1},
              {"Age", "date", ".metadata.creationTimestamp", ""},
          },
      .scale = {},
      .notes =
          {
              "`spec.trainer`, `spec.dataset`, `spec.evaluation`, `spec.checkpoint` and the pod "
              "settings are\n  extensions.",
          },
      .schema = &type_info<TrainingModel>().schema,
  };
  return kind;
}

Result<TrainingModel> TrainingModel::from_json(const Json& object) {
  return read_object<TrainingModel>(object);
}
Json TrainingInitialModel::to_json() const { return write_part(*this); }
Json TrainingScripts::to_json() const { return write_part(*this); }
Json TrainingModelStatus::to_json() const { return write_part(*this); }
Json TrainingModel::to_json() const { return write_object(*this); }

}  // namespace varda::api
