// InferenceModel (ai.kubeedge.io/v1alpha1): serves one model, in the cloud or on one edge node.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/ai/model_ref.h"
#include "api/ai/model_trial.h"
#include "api/ai/pod_settings.h"
#include "api/kind.h"
#include "meta/object.h"

namespace varda::api {

template <typename T>
class Type;

/// Credentials for the servers of an archive: a Secret in the model's namespace.
struct ModelCredentials {
  std::string secret_name;
  Json unknown;
  friend bool operator==(const ModelCredentials&, const ModelCredentials&) = default;
  static void describe(Type<ModelCredentials>& t);
};

struct ManifestEntry {
  std::string version;
  std::string download_url;
  std::string sha256sum;
  std::vector<std::string> mirrors;  // more URLs of the archive, tried after download_url
  std::optional<ModelCredentials> credentials;
  std::string signature;  // hosting/model_keys.h; "": none
  Json unknown;
  friend bool operator==(const ManifestEntry&, const ManifestEntry&) = default;
  static void describe(Type<ManifestEntry>& t);
};

struct InferenceModelService {
  std::string type = "NodePort";  // ClusterIP, LoadBalancer
  Json unknown;
  static void describe(Type<InferenceModelService>& t);
};

/// "NAME-tls": the Secret with the certificate that the operator issues for an object.
std::string issued_secret(const std::string& object_name);

/// Clients that the server accepts. Absent: every client that reaches the port, without TLS.
/// JointInferenceServices have this field too.
struct ModelSecurity {
  bool tls = false;                  // with a certificate that the operator issues
  std::string tls_secret_name;       // alternative: tls.crt, tls.key; "": plain HTTP, unless tls
  bool client_certificates = false;  // from the authority in ca.crt of that Secret
  std::string token_secret_name;     // key "token"; "": no token
  Json unknown;
  bool https() const { return tls || !tls_secret_name.empty(); }
  bool closed() const { return https() || !token_secret_name.empty(); }
  /// The Secret with the certificate of the named object. "": plain HTTP.
  std::string tls_secret_of(const std::string& object_name) const;
  /// As in a spec, without unset members. Null if no member is set.
  Json to_json() const;
  static void describe(Type<ModelSecurity>& t);
};

struct InferenceModelSpec : PodSettings {
  static constexpr std::int64_t kDefaultPort = 8080;

  std::string model_name;
  std::string deploy_to_layer;  // cloud, edge
  std::string framework_type;
  std::map<std::string, std::string> node_selector;
  std::string node_name;
  std::string image;  // if set, the server ignores manifest and target_version
  std::vector<ManifestEntry> manifest;
  std::string target_version;
  std::optional<ModelRef> model_ref;  // instead of manifest and target_version
  std::int64_t serving_port = kDefaultPort;
  std::int64_t replicas = 1;
  InferenceModelService service;
  std::string edge_network;  // host, hostport; "": the operator's default
  ModelSecurity security;
  std::optional<ModelTrial> trial;
  Json unknown;

  bool on_edge() const { return deploy_to_layer == "edge"; }
  bool from_image() const { return !image.empty(); }
  bool https() const { return !from_image() && security.https(); }
  /// The effective port: 0 means 8080.
  std::int64_t port() const { return serving_port == 0 ? kDefaultPort : serving_port; }
  const ManifestEntry* find_version(std::string_view version) const;
  static void describe(Type<InferenceModelSpec>& t);
};

/// The last version that failed before it served, and the reason. Absent once the target serves.
struct ModelFailure {
  std::string version;
  std::string reason;
  std::string message;
  std::string time;  // when this failure was first seen
  friend bool operator==(const ModelFailure&, const ModelFailure&) = default;
  static void describe(Type<ModelFailure>& t);
};

struct ModelStatus {
  std::string active;  // the version that serves
  std::string target;  // the version to serve
  std::optional<ModelFailure> last_failure;
  static void describe(Type<ModelStatus>& t);
};

/// The Model that modelRef chose last. It stays chosen until modelRef leads to another archive.
struct ChosenModel {
  std::string group, name;
  std::string version;         // to serve
  std::string framework_type;  // by the Model's format; "": spec.frameworkType decides
  std::string message;         // the reason of the choice
  // The archive of `version`, last. Before it, earlier archives that still serve or allow a
  // rollback: the Model no longer names them.
  std::vector<ManifestEntry> versions;
  Json unknown;
  const ManifestEntry* find_version(std::string_view wanted) const;
  friend bool operator==(const ChosenModel&, const ChosenModel&) = default;
  static void describe(Type<ChosenModel>& t);
};

struct InferenceModelStatus {
  std::string url;              // set only while the model answers
  std::string serving_version;  // the version that answers; kept while the node is unreachable
  std::vector<meta::Condition> conditions;
  std::int64_t observed_generation = 0;
  ModelStatus model_status;
  std::string node;
  std::int64_t replicas = 0;
  std::int64_t ready_replicas = 0;
  std::string selector;  // label selector of the pods, for the scale subresource
  std::vector<std::string> cached_versions;
  std::optional<ChosenModel> model_ref;
  std::optional<ModelTrialStatus> trial;
  Json unknown;
  Json to_json() const;
  static void describe(Type<InferenceModelStatus>& t);
};

struct InferenceModel {
  meta::ObjectMeta metadata;
  InferenceModelSpec spec;
  InferenceModelStatus status;
  Json unknown;

  static const Kind& kind();
  static const meta::Resource& resource() { return kind().resource; }
  static Result<InferenceModel> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<InferenceModel>& t);
};

/// Valid framework names. The operator's table decides which of them it can serve.
const std::vector<std::string>& known_frameworks();

}  // namespace varda::api
