#include "api/edgeai/model.h"

#include "api/describe.h"
#include "api/rule.h"
#include "api/version_name.h"

namespace varda::api {

namespace {

constexpr std::int64_t kSizeMax = std::int64_t{1} << 60;

template <Group G>
constexpr const char* kModelUrl = G == Group::kEdgeai ? "modelUrl" : "url";

}  // namespace

void ModelTensor::describe(Type<ModelTensor>& t) {
  t.doc("One input or output of the model.");
  t.field("name", &ModelTensor::name, "Name of the tensor.").required().length(1, 256);
  t.field("datatype", &ModelTensor::datatype,
          "Type of the elements, as in the Open Inference Protocol: FP32, UINT8, BYTES ...")
      .length(0, 32);
  t.field("shape", &ModelTensor::shape, "Shape of the tensor. -1: any size.").items_max(16);
  t.field("description", &ModelTensor::description, "Human-readable description of the content.")
      .length(0, 1024);
  t.keep_unknown(&ModelTensor::unknown);
}

template <Group G>
void ModelSpecOf<G>::describe(Type<ModelSpecOf>& t) {
  using S = ModelSpec;
  t.doc("Description of the model.");
  t.template field<std::string>(kModelUrl<G>, &S::url,
                                "Location of the model: a path or a URL. The model is downloaded "
                                "only for an object that serves "
                                "it, such as a JointInferenceService.")
      .required()
      .length(1, 4096);
  t.template field<std::string>("format", &S::format,
                                "Format of the file: onnx, pb, pt, tflite, tar.gz ... Default: "
                                "the suffix of the file in the URL.")
      .length(1, 63);
  t.template field<std::string>("credentialName", &S::credential_name,
                                G == Group::kSedna
                                    ? "Name of the Secret with the credentials for url."
                                    : "Extension: name of the Secret with the credentials for "
                                      "modelUrl.")
      .length(0, 253);
  t.template field<std::string>(
       "task", &S::task,
       "Extension: task of the model, such as image-classification or object-detection.")
      .length(0, 63);
  t.template field<std::vector<std::string>>("labels", &S::labels,
                                             "Extension: names of the model's classes, in order.")
      .items_max(2048)
      .each_length(1, 256);
  t.template field<std::vector<ModelTensor>>("inputs", &S::inputs,
                                             "Extension: inputs of the model.")
      .items_max(64);
  t.template field<std::vector<ModelTensor>>("outputs", &S::outputs,
                                             "Extension: outputs of the model.")
      .items_max(64);
  t.template field<std::int64_t>("size", &S::size, "Extension: size of the model in bytes.")
      .format("int64")
      .range(0, kSizeMax);
  t.template field<std::string>("sha256", &S::sha256,
                                "Extension: SHA-256 of the archive at the URL, 64 lower case "
                                "hexadecimal digits. Default: the digest that Varda reads when an "
                                "object first serves the model, in status.pinned.")
      .length(0, 64)
      .pattern("^[0-9a-f]{64}$");
  t.template field<std::string>("signature", &S::signature,
                                "Extension: signature of metadata.name, version and sha256, as "
                                "base64 of Ed25519 or as the text of a .minisig file. Required to "
                                "serve the model if the operator has a list of keys.")
      .length(0, 1024);
  t.template field<std::string>("version", &S::version,
                                "Extension: version of the model, and name of a directory on "
                                "nodes. Default: the first 12 digits of sha256.")
      .length(0, 63);
  t.template field<std::string>("sourceJob", &S::source_job,
                                "Extension: KIND/NAME of the job that made the model.")
      .length(0, 317);
  t.template field<std::vector<std::string>>(
       "parents", &S::parents, "Extension: names of the Models from which this one was made.")
      .items_max(16)
      .each_length(1, 253);
  t.template field<std::string>(
       "nodeName", &S::node_name,
       "Extension: the node that has the model, if the location is a path.")
      .length(0, 253);
  t.template field<std::optional<Replication>>(
      "replication", &S::replication,
      "Extension: nodes that get a copy of the files at the path on nodeName. Default: no copies.");
  t.template field<std::map<std::string, std::string>>(
       "metadata", &S::metadata,
       "Extension: further facts about the model, by name. Varda only selects by them. A name has "
       "1 to 253 characters.")
      .items_max(64)
      .each_length(0, 4096);
  t.keep_unknown(&S::unknown);
  t.rule(rules::matches_when_set("version", kVersionPattern, kVersionForbidden, kVersionExpected));
  t.rule(rules::keys_at_most("metadata", 253));
}

void ModelMetric::describe(Type<ModelMetric>& t) {
  t.doc("One metric of the model.");
  t.field("key", &ModelMetric::key, "Name of the metric: accuracy, mAP, f1 ...")
      .required()
      .length(1, 253);
  t.field("value", &ModelMetric::value, "Value of the metric, as text.").required().length(0, 1024);
  t.keep_unknown(&ModelMetric::unknown);
}

void ModelReporter::describe(Type<ModelReporter>& t) {
  t.doc("The last applied report of one worker.");
  t.field("node", &ModelReporter::node, "The worker's node.").required().length(1, 253);
  t.field("uid", &ModelReporter::uid, "metadata.uid of the worker's job.").required().length(1, 64);
  t.field("worker", &ModelReporter::worker, "NAMESPACE/NAME of the worker.")
      .required()
      .length(1, 317);
  t.field("sequence", &ModelReporter::sequence, "Number of the last applied report.")
      .required()
      .format("int64");
}

void PinnedFile::describe(Type<PinnedFile>& t) {
  t.doc("Digest of the file at the URL, as Varda first read it.");
  t.field("url", &PinnedFile::url, "URL of the file.").required().length(0, 4096);
  t.field("version", &PinnedFile::version, "spec.version at that time.").length(0, 63);
  t.field("sha256", &PinnedFile::sha256, "SHA-256 of the file.").required().length(64, 64);
  t.field("bytes", &PinnedFile::bytes, "Size of the file.").format("int64");
  t.field("time", &PinnedFile::time, "Time at which Varda read the file.").format("date-time");
}

const ModelMetric* ModelMetricsStatus::find_metric(std::string_view key) const {
  for (const ModelMetric& metric : metrics) {
    if (metric.key == key) return &metric;
  }
  return nullptr;
}

void ModelMetricsStatus::describe(Type<ModelMetricsStatus>& t) {
  using S = ModelMetricsStatus;
  t.doc("Metrics and state of the model.");
  t.field("updateTime", &S::update_time, "Time of the last change of a metric.")
      .format("date-time");
  t.field("metrics", &S::metrics, "Metrics from jobs that trained or evaluated the model.")
      .items_max(256);
  t.field("reporters", &S::reporters, "The last applied report of each worker.")
      .items_max(S::kReportersMax)
      .list_map({"node", "uid", "worker"});
  t.field("replication", &S::replication, "State of the copies on other nodes.");
  t.field("pinned", &S::pinned,
          "Digest of a file without spec.sha256. Nodes refuse other bytes. A new URL or a new "
          "spec.version replaces it.");
  t.field("conditions", &S::conditions,
          "Ready: the model is registered. ReportAccepted: False while parts of a worker's report "
          "are omitted or invalid. Pinned: Varda knows the digest of a file without spec.sha256. "
          "The guide lists the reasons.")
      .items_max(16)
      .list_map({"type"});
  t.field("observedGeneration", &S::observed_generation,
          "metadata.generation that this status describes.")
      .format("int64");
  t.keep_unknown(&S::unknown);
}

template <Group G>
void ModelOf<G>::describe(Type<ModelOf>& t) {
  t.doc(
      "Facts about a model, to select models by. A Model does not serve; an InferenceModel does.");
  t.field("metadata", &ModelOf::metadata, "Standard object metadata.");
  t.field("spec", &ModelOf::spec, "Description of the model.").required();
  t.field("status", &ModelOf::status,
          "Metrics and state of the model. The metrics come from jobs.");
  t.keep_unknown(&ModelOf::unknown);
}

template <Group G>
const Kind& ModelOf<G>::kind() {
  constexpr bool sedna = G == Group::kSedna;
  static const Kind kind{
      .resource = {sedna ? "sedna.io" : "edgeai.io", "v1alpha1", "Model", "models", true},
      .singular = "model",
      .page = sedna ? "sedna-model" : "",
      .short_names = {sedna ? "smdl" : "mdl"},
      .columns =
          {
              {"updateAGE", "date", ".status.updateTime", "The update age"},
              {"metrics", "string", ".status.metrics", "The metrics"},
          },
      .scale = {},
      .notes = {sedna ? "The same as the Model of edgeai.io, with the names of Sedna. Manifests "
                        "for Sedna apply unchanged."
                      : "`sedna.io/v1alpha1` has the same kind, with the names of Sedna.",
                "`varda models ls` lists, filters and sorts the Models of both groups."},
      .schema = &type_info<ModelOf>().schema,
  };
  return kind;
}

template <Group G>
Result<ModelOf<G>> ModelOf<G>::from_json(const Json& object) {
  return read_object<ModelOf>(object);
}
template <Group G>
Json ModelOf<G>::to_json() const {
  return write_object(*this);
}
const std::string& known_sha256(const ModelSpec& spec, const ModelMetricsStatus& status) {
  const auto& pinned = status.pinned;
  const bool valid =
      spec.sha256.empty() && pinned && pinned->url == spec.url && pinned->version == spec.version;
  return valid ? pinned->sha256 : spec.sha256;
}
Json ModelMetricsStatus::to_json() const { return write_part(*this); }

Result<ModelMetricsStatus> ModelMetricsStatus::from_json(const Json& status) {
  ModelMetricsStatus out;
  if (status.is_null()) return out;
  if (auto failed = read_struct(type_info<ModelMetricsStatus>(), &out, status)) {
    return Error(Code::kInvalid, "status" + failed->path + ": " + failed->what);
  }
  return out;
}

template struct ModelSpecOf<Group::kEdgeai>;
template struct ModelSpecOf<Group::kSedna>;
template struct ModelOf<Group::kEdgeai>;
template struct ModelOf<Group::kSedna>;

}  // namespace varda::api
