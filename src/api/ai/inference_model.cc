#include "api/ai/inference_model.h"

#include "api/ai/describe_pod_settings.h"
#include "api/describe.h"
#include "api/rule.h"
#include "api/version_name.h"

namespace varda::api {

namespace {

// Rules check versions, URLs and digests only without an image: a server from an image ignores the
// manifest.
constexpr std::string_view kUrlPattern = "^((https?|s3)://[^/ ]+|file:///)[^ ]*$";
constexpr std::string_view kDigestPattern = "^[0-9a-f]{64}$";
constexpr std::string_view kSubdomain = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$";
constexpr std::string_view kSubdomainOrEmpty = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$";
constexpr std::string_view kLabelValue = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

Rule forbidden_where(std::string cel, std::string field, std::string why,
                     std::function<bool(const Json& self)> wrong) {
  Rule rule;
  rule.cel = "!(" + cel + ")";
  rule.message = why;
  rule.reason = "FieldValueForbidden";
  rule.field_path = field;
  rule.check = [field = std::move(field), why = std::move(why),
                wrong = std::move(wrong)](const Json& self) -> std::vector<Violation> {
    if (!wrong(self)) return {};
    return {{"FieldValueForbidden", field, "Forbidden: " + why}};
  };
  return rule;
}

const rules::Member kModelRef{"modelRef", rules::Shape::kObject};
const rules::Member kTrial{"trial", rules::Shape::kObject};

// With a modelRef the archives are in the status, which no rule of the spec can read.
Rule trial_is_listed() {
  static constexpr std::string_view kWhat = "must be the version of an entry of manifest";
  Rule rule;
  rule.cel =
      "!has(self.trial) || has(self.modelRef) || (has(self.manifest) && self.manifest.exists(i, "
      "has(i.version) && i.version == self.trial.version))";
  rule.message = "trial.version " + std::string(kWhat);
  rule.reason = "FieldValueInvalid";
  rule.field_path = ".trial.version";
  rule.check = [](const Json& self) -> std::vector<Violation> {
    const Json& version = self["trial"]["version"];
    if (self["trial"].is_null() || !self["modelRef"].is_null()) return {};
    for (const Json& entry : self["manifest"].as_array())
      if (entry["version"] == version) return {};
    return {rules::invalid(".trial.version", version, kWhat)};
  };
  return rule;
}

constexpr std::string_view kNamesSecret = "has(self.tlsSecretName) && size(self.tlsSecretName) > 0";

}  // namespace

const std::vector<std::string>& known_frameworks() {
  static const std::vector<std::string> names{
      "onnx",        "tensorflow", "pb",       "tflite",  "keras",     "pytorch",
      "torchscript", "caffe",      "darknet",  "paddle",  "mindspore", "openvino",
      "tensorrt",    "xgboost",    "lightgbm", "sklearn", "triton"};
  return names;
}

const ManifestEntry* InferenceModelSpec::find_version(std::string_view version) const {
  for (const ManifestEntry& entry : manifest) {
    if (entry.version == version) return &entry;
  }
  return nullptr;
}

const ManifestEntry* ChosenModel::find_version(std::string_view wanted) const {
  for (const ManifestEntry& entry : versions) {
    if (entry.version == wanted) return &entry;
  }
  return nullptr;
}

void ModelCredentials::describe(Type<ModelCredentials>& t) {
  t.doc("Extension: credentials for the servers of the archive.");
  t.field("secretName", &ModelCredentials::secret_name,
          "Secret in the model's namespace. Its keys are hosts, and username with password, token, "
          "or AWS_ACCESS_KEY_ID with "
          "AWS_SECRET_ACCESS_KEY. docs/guides/artifacts.md lists all keys.")
      .required()
      .length(1, 253)
      .pattern(kSubdomain);
  t.keep_unknown(&ModelCredentials::unknown);
}

void ManifestEntry::describe(Type<ManifestEntry>& t) {
  t.doc("One version of the model.");
  t.field("version", &ManifestEntry::version,
          "Unique name of the version: 1 to 63 letters, digits, '.', '_' or '-'. The name must not "
          "begin with '.', and must not be "
          "\"target\".")
      .always()
      .length(0, 253);
  t.field("downloadURL", &ManifestEntry::download_url,
          "URL of the archive (.tar.gz, .tar.zst, .tar or .zip), or of a model of one file (.onnx, "
          ".pb ...): http, https, s3 or file. A file URL must be below a directory that the node's "
          "administrator allows.")
      .always()
      .length(0, 2048);
  t.field("sha256sum", &ManifestEntry::sha256sum,
          "SHA-256 of the downloaded archive: 64 lower case hexadecimal digits. Put the value in "
          "quotes: YAML may read it as a "
          "number.")
      .always()
      .length(0, 128);
  t.field("mirrors", &ManifestEntry::mirrors,
          "Extension: more URLs of the same archive. They are tried in this order if downloadURL "
          "fails.")
      .items_max(8)
      .each_length(1, 2048)
      .each_pattern(kUrlPattern);
  t.field("credentials", &ManifestEntry::credentials,
          "Extension: credentials for downloadURL and mirrors.");
  t.field(
       "signature", &ManifestEntry::signature,
       "Extension: signature of modelName, version and sha256sum, as base64 of Ed25519 or as the "
       "text of a .minisig file. Required if the operator has a list of keys "
       "(docs/guides/signatures.md).")
      .length(0, 1024);
  t.keep_unknown(&ManifestEntry::unknown);
}

void InferenceModelService::describe(Type<InferenceModelService>& t) {
  t.doc("How the Service of the cloud layer is exposed.");
  t.field("type", &InferenceModelService::type, "Type of the Service.")
      .defaulted()
      .one_of({"NodePort", "ClusterIP", "LoadBalancer"});
  t.keep_unknown(&InferenceModelService::unknown);
}

void ModelSecurity::describe(Type<ModelSecurity>& t) {
  t.doc(
      "Clients that the server accepts. Without it, the server accepts every client over plain "
      "HTTP.");
  t.field("tls", &ModelSecurity::tls,
          "The server answers HTTPS only. Varda issues and renews the certificate in the Secret "
          "NAME-tls (tls.crt, tls.key, ca.crt).");
  t.field("tlsSecretName", &ModelSecurity::tls_secret_name,
          "Alternative to tls: your own Secret in the same namespace, with tls.crt and tls.key. "
          "The server answers HTTPS only.")
      .length(0, 253)
      .pattern(kSubdomainOrEmpty);
  t.field("clientCertificates", &ModelSecurity::client_certificates,
          "Clients need a certificate from the authority in ca.crt of the Secret that "
          "tlsSecretName names.");
  t.field("tokenSecretName", &ModelSecurity::token_secret_name,
          "Secret in the same namespace. Each line of the key token is one token. Clients send "
          "\"Authorization: Bearer TOKEN\".")
      .length(0, 253)
      .pattern(kSubdomainOrEmpty);
  t.keep_unknown(&ModelSecurity::unknown);
  // The schema refuses values of other types.
  const auto names_secret = [](const Json& self) {
    const Json& name = self["tlsSecretName"];
    return name.is_string() ? !name.as_string().empty() : !name.is_null();
  };
  t.rule(forbidden_where(
      "has(self.tls) && self.tls && " + std::string(kNamesSecret), ".tlsSecretName",
      "may not be set together with tls: true",
      [names_secret](const Json& self) { return self["tls"].as_bool() && names_secret(self); }));
  // An issued certificate identifies the server. It contains no authority for clients.
  t.rule(forbidden_where(
      "has(self.clientCertificates) && self.clientCertificates && !(" + std::string(kNamesSecret) +
          ")",
      ".clientCertificates",
      "needs a tlsSecretName: ca.crt of that Secret has the authority of the clients",
      [names_secret](const Json& self) {
        return self["clientCertificates"].as_bool() && !names_secret(self);
      }));
}

std::string issued_secret(const std::string& object_name) { return object_name + "-tls"; }

std::string ModelSecurity::tls_secret_of(const std::string& object_name) const {
  return tls && tls_secret_name.empty() ? issued_secret(object_name) : tls_secret_name;
}

Json ModelSecurity::to_json() const {
  Json out;
  if (tls) out.set("tls", true);
  if (!tls_secret_name.empty()) out.set("tlsSecretName", tls_secret_name);
  if (client_certificates) out.set("clientCertificates", true);
  if (!token_secret_name.empty()) out.set("tokenSecretName", token_secret_name);
  return out;
}

void InferenceModelSpec::describe(Type<InferenceModelSpec>& t) {
  using rules::Shape;
  using S = InferenceModelSpec;
  t.doc("The model to serve, the source of its files, and its place.");
  t.field("modelName", &S::model_name, "Name of the model in requests of clients.")
      .required()
      .length(1, 63)
      .pattern("^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$");
  t.field("deployToLayer", &S::deploy_to_layer,
          "cloud: a Deployment with a Service, outside edge nodes. edge: one Pod on the node that "
          "nodeName or nodeSelector selects.")
      .required()
      .one_of({"cloud", "edge"});
  t.field(
       "frameworkType", &S::framework_type,
       "Framework of the model. The operator has a server for onnx, tensorflow (SavedModels, and "
       "frozen graphs at the edge), pb (frozen TensorFlow graphs), caffe, darknet, triton and "
       "tensorrt. A file of --servers adds a server for another framework. Required without an "
       "image or a modelRef. Default with a modelRef: by the Model's format.")
      .one_of(known_frameworks());
  t.field("nodeSelector", &S::node_selector,
          "Labels of the node. In the edge layer exactly one node must match.")
      .items_max(32)
      .each_length(0, 63)
      .each_pattern(kLabelValue);
  t.field("nodeName", &S::node_name,
          "Name of the node. If nodeSelector is set, the node must match it too.")
      .length(0, 253)
      .pattern(kSubdomainOrEmpty);
  t.field(
       "image", &S::image,
       "Image of a server that contains its model. If set, manifest and targetVersion are ignored.")
      .length(0, 1024)
      .pattern("^[^ ]*$");
  t.field("manifest", &S::manifest,
          "The versions of the model. Required without an image or a modelRef.")
      .items_max(64);
  t.field("targetVersion", &S::target_version,
          "The version to serve, an entry of the manifest. Required without an image or a "
          "modelRef.")
      .length(0, 253);
  t.field("modelRef", &S::model_ref,
          "Extension: the Model to serve, instead of manifest and targetVersion.");
  t.field("servingPort", &S::serving_port, "Port of the server; 0 means 8080.")
      .defaulted()
      .format("int32")
      .range(0, 65535);
  t.field(
       "replicas", &S::replicas,
       "Number of servers. At most 1 in the edge layer. 0 stops the servers and keeps the files.")
      .defaulted()
      .format("int32")
      .range(0, 2147483647);
  t.field("service", &S::service, "Extension: how the Service of the cloud layer is exposed.");
  describe_pod_settings(t);
  t.field(
       "edgeNetwork", &S::edge_network,
       "Extension: network of the pod in the edge layer. host: the pod uses the node's network. "
       "hostport: the pod has its own "
       "address, and the node forwards servingPort. Default: the operator's flag --edge-network.")
      .one_of({"host", "hostport"});
  t.field("security", &S::security, "Extension: clients that the server accepts.");
  t.field("trial", &S::trial,
          "Extension: a version that answers beside the serving version. Edge layer and "
          "varda-serve only.");
  t.keep_unknown(&S::unknown);

  const auto without_image = [&t](Rule rule) {
    t.rule(rules::unless_set("image", std::move(rule)));
  };
  const auto without_source = [&t](Rule rule) {
    t.rule(rules::unless_any_set({{"image"}, kModelRef}, std::move(rule)));
  };
  without_source(rules::required({"frameworkType"},
                                 "frameworkType is required without an image or a modelRef"));
  without_source(rules::required({"manifest", Shape::kList},
                                 "a manifest is required without an image or a modelRef"));
  without_image(rules::each_matches("manifest", "version", kVersionPattern, kVersionExpected));
  without_image(rules::each_differs("manifest", "version", {std::string(kVersionForbidden)}));
  without_image(rules::each_unique("manifest", "version"));
  without_image(rules::each_matches("manifest", "downloadURL", kUrlPattern,
                                    "must be an http, https, s3 or file URL"));
  without_image(rules::each_matches("manifest", "sha256sum", kDigestPattern,
                                    "must be 64 lower case hexadecimal digits"));
  without_source(rules::required({"targetVersion"},
                                 "targetVersion is required without an image or a modelRef"));
  without_image(rules::listed("targetVersion", "manifest", "version"));
  without_image(reserved_variables());
  t.rule(rules::forbidden_with(
      kModelRef, {{"image"}, {"manifest", Shape::kList}, {"targetVersion"}},
      "may not be set together with image, manifest or targetVersion: the Model has the archive "
      "and its version"));
  t.rule(rules::forbidden_with(kTrial, {{"image"}}, "may not be set together with image"));
  t.rule(rules::forbidden_when(kTrial, "deployToLayer", "cloud",
                               "works in the edge layer only: set deployToLayer edge"));
  without_image(trial_is_listed());
  t.rule(rules::at_most_when("replicas", 1, "deployToLayer", "edge",
                             "must be 0 or 1 in the edge layer"));
  t.rule(rules::any_required_when({{"nodeName"}, {"nodeSelector", Shape::kList}}, "deployToLayer",
                                  "edge", "the edge layer needs a nodeName or a nodeSelector"));
}

void ModelFailure::describe(Type<ModelFailure>& t) {
  t.doc("The last version that failed before it served, and the reason.");
  t.field("version", &ModelFailure::version, "The version that failed.").length(0, 63);
  t.field("reason", &ModelFailure::reason,
          "Reason as one word: DownloadFailed, DigestMismatch, LoadFailed ...")
      .length(0, 128);
  t.field("message", &ModelFailure::message, "Human-readable explanation.").length(0, 4096);
  t.field("time", &ModelFailure::time, "Time when this failure was first seen.")
      .format("date-time");
}

void ModelStatus::describe(Type<ModelStatus>& t) {
  t.doc("The serving version and the target version.");
  t.field("active", &ModelStatus::active, "The version that serves.").length(0, 63);
  t.field("target", &ModelStatus::target, "The version to serve.").length(0, 63);
  t.field("lastFailure", &ModelStatus::last_failure,
          "The last version that failed before it served. Absent once the target serves.");
}

void ChosenModel::describe(Type<ChosenModel>& t) {
  using C = ChosenModel;
  t.doc("The Model that modelRef chose last, and the archives that the node may hold.");
  t.field("group", &C::group, "API group of the Model.").length(0, 253);
  t.field("name", &C::name, "Name of the Model.").length(0, 253);
  t.field("version", &C::version, "Version of the Model, the version to serve.").length(0, 63);
  t.field("frameworkType", &C::framework_type, "Framework of the Model, by its format.")
      .length(0, 63);
  t.field("message", &C::message, "The reason of the choice.").length(0, 4096);
  t.field("versions", &C::versions,
          "The archive of version, last. Before it, earlier archives that still serve or allow a "
          "rollback.")
      .items_max(8);
  t.keep_unknown(&C::unknown);
}

void InferenceModelStatus::describe(Type<InferenceModelStatus>& t) {
  using S = InferenceModelStatus;
  t.doc("The observed state.");
  t.field("url", &S::url, "URL of the model. Absent while the model does not answer.")
      .length(0, 2048);
  t.field("servingVersion", &S::serving_version,
          "The version that answers. While the node is unreachable, the version that the node last "
          "reported.")
      .length(0, 63);
  t.field("conditions", &S::conditions,
          "Ready: the model answers. TargetVersionReady: the target version serves. The guide "
          "lists the reasons.")
      .items_max(16)
      .list_map({"type"});
  t.field("observedGeneration", &S::observed_generation,
          "metadata.generation that this status describes.")
      .format("int64");
  t.field("modelStatus", &S::model_status, "The serving version and the target version.");
  t.field("node", &S::node, "The edge node of the model.").length(0, 253);
  t.field("replicas", &S::replicas, "Number of existing servers.")
      .always()
      .format("int32")
      .range(0, 2147483647);
  t.field("readyReplicas", &S::ready_replicas, "Number of servers that answer.")
      .always()
      .format("int32")
      .range(0, 2147483647);
  t.field("selector", &S::selector, "Label selector of the server pods, for the scale subresource.")
      .length(0, 1024);
  t.field("cachedVersions", &S::cached_versions,
          "Versions that are complete on the edge node's disk.")
      .items_max(64)
      .each_length(0, 63);
  t.field("modelRef", &S::model_ref, "The Model that spec.modelRef chose last.");
  t.field("trial", &S::trial, "The version on trial, as its node last reported.");
  t.keep_unknown(&S::unknown);
}

void InferenceModel::describe(Type<InferenceModel>& t) {
  t.doc(
      "Serves one model in the cloud or on one edge node, from an image or from versioned "
      "archives.");
  t.field("metadata", &InferenceModel::metadata, "Standard object metadata.");
  t.field("spec", &InferenceModel::spec,
          "The model to serve, the source of its files, and its place.")
      .required();
  t.field("status", &InferenceModel::status, "The observed state. Only the operator writes it.");
  t.keep_unknown(&InferenceModel::unknown);
  t.rule(rules::name_is_service_name());
}

const Kind& InferenceModel::kind() {
  static const Kind kind{
      .resource = {"ai.kubeedge.io", "v1alpha1", "InferenceModel", "inferencemodels", true},
      .singular = "inferencemodel",
      .short_names = {"im"},
      .columns =
          {
              {"Model", "string", ".spec.modelName", "Name of the model"},
              {"Layer", "string", ".spec.deployToLayer", "cloud or edge"},
              {"Node", "string", ".status.node", "The edge node"},
              {"Version", "string", ".status.servingVersion", "The version that answers"},
              {"Target", "string", ".spec.targetVersion", "The version to serve", 1},
              {"Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status",
               "Whether the model answers"},
              {"Reason", "string", ".status.conditions[?(@.type==\"Ready\")].reason",
               "Reason of the condition Ready", 1},
              {"Rollout", "string", ".status.conditions[?(@.type==\"TargetVersionReady\")].reason",
               "Serving: the target version answers. Else the reason"},
              {"Progress", "string",
               ".status.conditions[?(@.type==\"TargetVersionReady\")].message",
               "Progress of the target version", 1},
              {"URL", "string", ".status.url", "URL of the model"},
              {"Age", "date", ".metadata.creationTimestamp", ""},
          },
      .scale = Scale{".spec.replicas", ".status.replicas", ".status.selector"},
      .notes =
          {
              "`manifest[].sha256sum` is required without an image, although early drafts of this "
              "kind lack it.\n  Without a "
              "digest, a node cannot recognise a broken archive.",
              "`spec.resources`, `spec.env`, `spec.imagePullSecrets`, `spec.tolerations`,\n  "
              "`spec.priorityClassName` and `spec.edgeNetwork` are extensions.",
              "`spec.service.type` is an extension, for the Service of the cloud layer.",
              "`manifest[].mirrors` and `manifest[].credentials` are extensions "
              "(docs/guides/artifacts.md).",
              "`spec.modelRef` is an extension (docs/guides/inference-model.md).",
              "`spec.trial` is an extension (docs/guides/inference-model.md).",
              "`manifest[].signature` is an extension (docs/guides/signatures.md).",
              "`servingPort` 0 means 8080.",
              "With an `image`, `manifest`, `targetVersion` and `frameworkType` are optional. The "
              "server ignores\n  `manifest` and "
              "`targetVersion` then, and checks only their JSON types.",
              "`metadata.name` must be a name that a Service can have.",
          },
      .schema = &type_info<InferenceModel>().schema,
  };
  return kind;
}

Result<InferenceModel> InferenceModel::from_json(const Json& object) {
  return read_object<InferenceModel>(object);
}
Json InferenceModelStatus::to_json() const { return write_part(*this); }
Json InferenceModel::to_json() const { return write_object(*this); }

}  // namespace varda::api
