// Options of an operator for InferenceModels: the server of each framework, and the address of node
// ports.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "base/clock.h"
#include "base/context.h"
#include "base/result.h"
#include "codec/json.h"
#include "hosting/model_keys.h"

namespace varda::hosting {

/// The server for models of one framework. {modelName}, {port} and {version} are replaced in
/// command, args, env values, mount_path, ready_path and the path of `reading`. The server must
/// listen on $(POD_IP):{port}, or on all addresses if it takes none. POD_IP is in its environment.
struct ServerEntry {
  std::string image;
  std::vector<std::string> command;  // empty: the image's
  std::vector<std::string> args;
  std::map<std::string, std::string> env;
  /// The model's directory in the container, with one folder for each version.
  std::string mount_path = "/models/{modelName}";
  std::string
      ready_path;  // answers 200 to GET once the model serves; empty: a TCP connection is enough
  /// The way in which the server learns the wanted version. EdgeModel::kTarget: folders are names,
  /// and the file `target` has the wanted one. kNumbered: folders are numbers
  /// (api/edgeai/version_number.h), and the greatest is wanted.
  std::string layout{api::EdgeModel::kTarget};
  std::vector<std::string>
      extra_files;                    // kNumbered: files of an archive that go beside the numbers
  api::EdgeStatusQuery status_query;  // the way to read the serving version from the server
  codec::Json security_context;       // of its container; null: none
  bool closable = false;              // takes varda-serve's flags for spec.security of a model
};

class CertificateIssuer;

/// The digest of a file that is read in the background.
struct FileDigest {
  enum class State { kReading, kRead, kFailed };
  State state = State::kReading;
  std::string sha256;  // 64 digits, for kRead
  std::int64_t bytes = 0;
  std::string message;  // for kFailed
};
/// Never blocks: the caller asks again until the state is not kReading.
using FileDigestReader = std::function<FileDigest(const std::string& url)>;
/// The files that the operator's FileDigestReader can read. Only on one machine are the paths of
/// nodes also paths of the operator.
enum class ReadableFiles { kDownloads, kDownloadsAndPaths };

using ServerTable = std::map<std::string, ServerEntry>;  // by frameworkType

/// onnx, pb, caffe and darknet by varda-serve, tensorflow by TensorFlow Serving, triton and
/// tensorrt by Triton: docs/design/016-cluster.md, docs/design/024-opencv.md.
ServerTable builtin_servers();

/// The frozen graphs among the models of tensorflow have another server.
inline constexpr std::string_view kTensorflow = "tensorflow", kFrozenGraph = "pb";

/// The entry of varda-serve in the built-in table, with this image.
ServerEntry varda_serve(std::string image = "varda-serve");

/// Security context of our own images: an ordinary user, and a read-only root file system. Passes
/// pod security `restricted`.
codec::Json restricted_container();

/// The built-in table with the operator's own entries over it, as the configuration has them:
///
///   openvino: {image: openvino/model_server:2024.4, args: [...], readyPath: ...,
///              layout: numbered, status: {path: ..., list: ...}}
///
/// An entry replaces the built-in one as a whole. kInvalid names the entry and the field.
Result<ServerTable> servers_from_json(const codec::Json& table);

/// A token that admits the agent of a Job as one node.
struct AgentToken {
  std::string text;  // for the agent
  std::string id;    // 12 hex digits
  std::string secret_sha256;
};

/// Jobs of the cluster for runs without a node.
struct ClusterJobs {
  std::string gateway_url;  // where the agents of Jobs reach a gateway
  std::string agent_image = "varda";
  /// The operator sees runs of these namespaces, and removes their EdgeNodes; empty: all.
  std::vector<std::string> namespaces = {};
  /// Makes a token that the gateways of the cluster trust. Nothing: no gateway has published its
  /// authority yet. Thread-safe, and does not block.
  std::function<std::optional<AgentToken>()> make_token;
  /// Creates a Secret, which no informer follows: the operator may not read Secrets of users.
  std::function<Status(const Context& ctx, const codec::Json& secret)> create_secret;
};

struct Options {
  ServerTable servers = builtin_servers();
  std::string serve_image = "varda-serve";  // also for the first tier of joint inference
  std::string train_image = "varda-train";  // the trainer of TrainingModels and federated jobs
  std::string aggregate_image = "varda-aggregate";  // the aggregator of FederatedLearningJobs
  /// URL of the registry that gets results of TrainingModels and federated jobs:
  /// "http://127.0.0.1:8092". "": none.
  std::string registry_url;
  /// Certificate of the authority that signs the identities of streams, as PEM; "": not known yet.
  /// Thread-safe, and does not block. Null: identities are not signed, as on one machine.
  std::function<std::string()> edge_authority;
  std::string fetch_image = "varda";  // runs `fetch --url U --sha256 S --to DIR` in the cloud layer
  std::vector<std::string> fetch_arguments;  // further arguments of that program: --allow-source
  std::string edge_network = "host";         // default of models: host, hostport
  /// Agents connect streams themselves and sign nothing: one machine without a gateway.
  bool unsigned_streams = false;
  /// One machine: the address of its node ports ("127.0.0.1"). Empty: a cluster, where any node has
  /// them.
  std::string node_port_host;
  const Clock* clock = nullptr;  // null: the machine's
  /// Keeps the Secrets with issued certificates of servers; outlives the controllers. Null: no
  /// Secret is kept.
  CertificateIssuer* certificates = nullptr;
  /// Reads files for Models without a digest. Empty: such Models need spec.sha256.
  FileDigestReader file_digests;
  ReadableFiles readable_files = ReadableFiles::kDownloads;
  /// Nothing: one machine, where no kubelet runs the pods of Jobs.
  std::optional<ClusterJobs> jobs;
  /// Keys that must sign the versions of models. Null: signatures are not checked.
  std::shared_ptr<ModelKeySource> model_keys;
};

inline const Clock& clock_of(const Options& options) {
  return options.clock != nullptr ? *options.clock : system_clock();
}

/// The present keys; null: signatures are not checked.
inline std::shared_ptr<const ModelKeys> keys_of(const Options& options) {
  return options.model_keys == nullptr ? nullptr : options.model_keys->keys();
}

}  // namespace varda::hosting
