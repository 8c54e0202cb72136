// InferenceModel (ai.kubeedge.io/v1alpha1): one serving service for one model, in the cloud or on one edge node.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/kind.h"
#include "meta/object.h"

namespace varda::api {

template <typename T>
class Type;

/// What the sources of an archive ask for: a Secret beside the model.
struct ModelCredentials {
  std::string secret_name;
  Json unknown;
  static void describe(Type<ModelCredentials>& t);
};

struct ManifestEntry {
  std::string version;
  std::string download_url;
  std::string sha256sum;
  std::vector<std::string> mirrors;  // further URLs of the same archive, after download_url
  std::optional<ModelCredentials> credentials;
  Json unknown;
  static void describe(Type<ManifestEntry>& t);
};

struct InferenceModelService {
  std::string type = "NodePort";  // ClusterIP, LoadBalancer
  Json unknown;
  static void describe(Type<InferenceModelService>& t);
};

/// Amounts by the name of a resource, as text: "cpu": "500m". A whole number in the object counts as its text.
struct Quantities {
  std::map<std::string, std::string> values;
  friend bool operator==(const Quantities&, const Quantities&) = default;
};

/// What the server's container asks the node for, and may have at most.
struct ModelResources {
  Quantities requests, limits;
  static void describe(Type<ModelResources>& t);
};

/// "NAME-tls": the Secret with the certificate that the operator issues for an object.
std::string issued_secret(const std::string& object_name);

/// Clients that the server answers. Absent: every client that reaches the port, without TLS.
/// JointInferenceServices have this field too.
struct ModelSecurity {
  bool tls = false;                  // with a certificate that the operator issues
  std::string tls_secret_name;       // instead: tls.crt, tls.key; "" plain HTTP, without tls
  bool client_certificates = false;  // of the authority in ca.crt of the same Secret
  std::string token_secret_name;     // key "token"; "" no token
  Json unknown;
  bool https() const { return tls || !tls_secret_name.empty(); }
  bool closed() const { return https() || !token_secret_name.empty(); }
  /// The Secret with the certificate of the object of that name. "": plain HTTP.
  std::string tls_secret_of(const std::string& object_name) const;
  /// As in a spec, without what is not set. Null: nothing is.
  Json to_json() const;
  static void describe(Type<ModelSecurity>& t);
};

struct InferenceModelSpec {
  static constexpr std::int64_t kDefaultPort = 8080;

  std::string model_name;
  std::string deploy_to_layer;  // cloud, edge
  std::string framework_type;
  std::map<std::string, std::string> node_selector;
  std::string node_name;
  std::string image;  // set: the image way, which looks at neither manifest nor target_version
  std::vector<ManifestEntry> manifest;
  std::string target_version;
  std::int64_t serving_port = kDefaultPort;
  std::int64_t replicas = 1;
  InferenceModelService service;
  ModelResources resources;
  std::string edge_network;  // host, hostport; "" the operator's choice
  ModelSecurity security;
  Json unknown;

  bool on_edge() const { return deploy_to_layer == "edge"; }
  bool from_image() const { return !image.empty(); }
  bool https() const { return !from_image() && security.https(); }
  /// The port that is meant: 0 means 8080.
  std::int64_t port() const { return serving_port == 0 ? kDefaultPort : serving_port; }
  const ManifestEntry* find_version(std::string_view version) const;
  static void describe(Type<InferenceModelSpec>& t);
};

/// The last version that did not get to serve, and why. Gone when the target serves.
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
  std::string target;  // the version that shall
  std::optional<ModelFailure> last_failure;
  static void describe(Type<ModelStatus>& t);
};

struct InferenceModelStatus {
  std::string url;              // set while the model answers there
  std::string serving_version;  // what answers; kept while the node is out of reach
  std::vector<meta::Condition> conditions;
  std::int64_t observed_generation = 0;
  ModelStatus model_status;
  std::string node;
  std::int64_t replicas = 0;
  std::int64_t ready_replicas = 0;
  std::string selector;  // of the pods, for the scale subresource
  std::vector<std::string> cached_versions;
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

/// Names a framework may have; which of them can be served is the operator's table.
const std::vector<std::string>& known_frameworks();

}  // namespace varda::api
