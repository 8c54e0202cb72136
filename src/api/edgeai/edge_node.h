// EdgeNode (edgeai.io/v1alpha1, cluster-scoped): the node's work list in spec, the node's report in
// status.
//
// The agent creates the object and writes status. Only controllers/edgenode writes spec.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/edgeai/worker_uploads.h"
#include "api/kind.h"
#include "meta/object.h"

namespace varda::api {

template <typename T>
class Type;

/// The name in a node's certificate, which other nodes verify before they copy files. Gateways and
/// hosts never have such a name.
std::string peer_name(std::string_view node);

/// True for https://HOST and https://HOST:PORT only. Other nodes append a path to the URL. With any
/// other URL, the node could choose the target of their requests.
bool is_peer_url(std::string_view url);

/// A node that has files, or soon will.
struct EdgeReplicaSource {
  std::string node;
  std::string url;  // status.peerUrl of that node
  Json unknown;
  friend bool operator==(const EdgeReplicaSource&, const EdgeReplicaSource&) = default;
  static void describe(Type<EdgeReplicaSource>& t);
};

struct EdgeModelVersion {
  std::string version;
  std::string url;
  std::string sha256;
  std::vector<std::string> mirrors;  // more URLs of the archive, tried after `url`
  std::string credentials;           // NAMESPACE/NAME of the Secret for all URLs; "": none
  // Copies of the archive between nodes (docs/design/015).
  std::vector<EdgeReplicaSource> peers;  // asked before url, in this order
  // Nodes that may copy the archive. This node keeps the archive for them.
  std::vector<std::string> share_with;
  Json unknown;
  static void describe(Type<EdgeModelVersion>& t);
};

/// Describes how to read the serving version from a server. JSON pointers (RFC 6901) lead into one
/// item of the list. The defaults fit the repository index of the Open Inference Protocol.
struct EdgeStatusQuery {
  std::string path = "/v2/repository/index";
  std::string method = "POST";  // POST sends {}
  // Pointer to the versions in the answer. "": the answer itself. An object is a list of one.
  std::string list;
  std::string name = "/name";  // pointer to the model's name; "": all items are about this model
  std::string version = "/version";
  std::string state = "/state";  // "": every item with a version serves
  std::vector<std::string> ready{"READY"};
  std::vector<std::string> loading{"LOADING"};
  std::string code = "/code";  // reason of a failure, one word
  // Explanation of any other state. "" and the texts in `ignored_messages` are not failures.
  std::string message = "/reason";
  std::vector<std::string> ignored_messages{"unloaded"};
  Json unknown;
  friend bool operator==(const EdgeStatusQuery&, const EdgeStatusQuery&) = default;
  static void describe(Type<EdgeStatusQuery>& t);
};

struct EdgeModelServing {
  std::string url;  // address of the pod
  // Absent: the repository index of the Open Inference Protocol.
  std::optional<EdgeStatusQuery> status_query;
  Json unknown;
  static void describe(Type<EdgeModelServing>& t);
};

struct EdgeModel {
  static constexpr std::string_view kTarget = "target", kNumbered = "numbered";

  // NAMESPACE/NAME of the InferenceModel, or NAMESPACE/NAME.WORKER of a job's worker.
  std::string key;
  std::string model_name;
  std::string framework;
  // Layout of versions for the server: kTarget (also "") or kNumbered (artifact/numbered_view.h).
  std::string layout;
  // With kNumbered: files from the root of the active version, placed beside the numbered
  // directories.
  std::vector<std::string> extra_files;
  std::vector<EdgeModelVersion> versions;
  std::string target;
  std::optional<EdgeModelServing> serving;
  // Content of the file joint.json beside `target`, an object for the server. Null: no file.
  Json joint;
  Json unknown;
  static void describe(Type<EdgeModel>& t);
};

struct EdgeDataset {
  std::string key;  // RESOURCE.GROUP/NAMESPACE/NAME: "datasets.edgeai.io/default/faces"
  std::string uid;  // uid of that object; a new object with the name is another dataset
  std::string path;
  std::string format;
  std::string header;                // auto, yes, no; "": auto
  std::int64_t recount_seconds = 0;  // period of a full recount; 0: the agent's default
  Json unknown;
  static void describe(Type<EdgeDataset>& t);
};

/// A TCP connection that the worker may open through its agent (docs/design/029-streams.md).
struct EdgeStream {
  static constexpr std::size_t kMax = 8;  // of one worker

  std::string name;       // "aggregator": unique for the worker
  std::string address;    // HOST:PORT of the target, as the gateway reaches it; "": not known yet
  bool listen = false;    // the agent also opens a port on the node that leads to the target
  bool identity = false;  // the target gets the worker's identity before the first byte
  Json unknown;
  friend bool operator==(const EdgeStream&, const EdgeStream&) = default;
  static void describe(Type<EdgeStream>& t);
};

/// The bucket for a worker's files, instead of the registry (docs/design/025-uploads.md).
struct EdgeBucket {
  std::string url;          // s3://BUCKET or s3://BUCKET/PREFIX
  std::string credentials;  // NAMESPACE/NAME of the Secret; "": requests are not signed
  Json unknown;
  friend bool operator==(const EdgeBucket&, const EdgeBucket&) = default;
  static void describe(Type<EdgeBucket>& t);

  /// The key of a file, relative to the URL: "HEX/NAME". The suffix of the name distinguishes
  /// a plain file from an archive.
  static std::string key_of(std::string_view sha256, std::string_view name);
  /// The URL of a file in the bucket with this URL.
  static std::string url_of(std::string_view url, std::string_view sha256, std::string_view name);
};

struct EdgeWorker {
  std::string key;  // NAMESPACE/NAME
  std::string uid;
  std::string owner;                     // KIND/NAME of the job, for display
  Json assignment;                       // defined by the job; the worker reads it
  std::optional<WorkerUploads> uploads;  // absent: the worker may not upload files
  std::optional<EdgeBucket> bucket;      // place of these files; absent: the registry
  std::vector<EdgeStream> streams;       // the only targets that the worker may reach
  Json unknown;
  const EdgeStream* find_stream(std::string_view name) const;
  static void describe(Type<EdgeWorker>& t);
};

/// Files of this node that other nodes copy (docs/design/015).
struct EdgeShare {
  std::string key;                 // as for datasets; also models.GROUP/NAMESPACE/NAME
  std::string path;                // "": this node's own copy under the key
  std::vector<std::string> nodes;  // nodes that may copy the files
  bool relay = false;              // this node uploads the snapshot to the registry
  Json unknown;
  static void describe(Type<EdgeShare>& t);
};

/// Files to copy from other nodes.
struct EdgeReplica {
  std::string key;
  std::string uid;
  std::string snapshot;  // name of the snapshot to copy; "": not known yet
  std::vector<EdgeReplicaSource> sources;
  bool relay = false;  // the registry has the snapshot, and is asked after the sources
  // Facts of the object, for readers of the copy: members of the object, at most 4 KiB. Null: none.
  Json metadata;
  Json unknown;
  static void describe(Type<EdgeReplica>& t);
};

/// A file of the node that an object names without its digest.
struct EdgeFile {
  static constexpr std::size_t kMax = 64;

  std::string key;  // as for datasets; also models.GROUP/NAMESPACE/NAME
  std::string uid;  // of that object
  std::string path;
  std::string version;  // spec.version of that object: another version asks for another read
  Json unknown;
  friend bool operator==(const EdgeFile&, const EdgeFile&) = default;
  static void describe(Type<EdgeFile>& t);
};

struct EdgeNodeSpec {
  std::vector<EdgeModel> models;
  std::vector<EdgeDataset> datasets;
  std::vector<EdgeWorker> workers;
  std::vector<EdgeShare> shares;
  std::vector<EdgeReplica> replicas;
  std::vector<EdgeFile> files;
  Json unknown;
  const EdgeModel* find_model(std::string_view key) const;
  const EdgeDataset* find_dataset(std::string_view key) const;
  const EdgeWorker* find_worker(std::string_view key) const;
  Json to_json() const;
  static void describe(Type<EdgeNodeSpec>& t);
};

struct EdgeVersionReport {
  static constexpr std::string_view kPending = "Pending", kDownloading = "Downloading",
                                    kReady = "Ready", kFailed = "Failed";
  static constexpr std::string_view kSavedModel = "saved-model", kPb = "pb";

  std::string version;
  std::string state;
  std::string reason;
  std::string message;
  // SHA-256 of the reported archive, because a manifest may reuse a version name. "": an older
  // agent.
  std::string sha256;
  std::int64_t bytes = 0;
  std::int64_t bytes_done = 0;   // of a long download; 0: none
  std::int64_t bytes_total = 0;  // 0: unknown
  bool shared = false;           // the node keeps the archive and shares it
  std::string format;            // kPb or kSavedModel; "": not installed, or not of tensorflow
  Json unknown;
  static void describe(Type<EdgeVersionReport>& t);
};

struct EdgeServingReport {
  static constexpr std::string_view kReady = "Ready", kLoading = "Loading", kFailed = "Failed",
                                    kUnreachable = "Unreachable";

  std::string version;
  std::string state;
  std::string failed_version;
  std::string reason;
  std::string message;
  Json unknown;
  static void describe(Type<EdgeServingReport>& t);
};

struct EdgeModelReport {
  std::string key;
  std::string exposed;  // the version in the file `target`; "": none
  std::vector<EdgeVersionReport> versions;
  std::optional<EdgeServingReport> serving;
  // The server's report on its tiers. Counters are summed over starts of the server
  // (docs/design/017). Null: no report.
  Json joint;
  Json unknown;
  const EdgeVersionReport* find_version(std::string_view version) const;
  static void describe(Type<EdgeModelReport>& t);
};

struct EdgeClassCount {
  std::string name;
  std::int64_t count = 0;
  Json unknown;
  static void describe(Type<EdgeClassCount>& t);
};

struct EdgeMalformed {
  std::string file;       // below the dataset's path; "": the path is the file
  std::int64_t line = 0;  // from 1; 0: the format has no lines
  std::int64_t byte = 0;
  std::string why;
  Json unknown;
  static void describe(Type<EdgeMalformed>& t);
};

struct EdgeDatasetReport {
  static constexpr std::string_view kPending = "Pending", kCounting = "Counting",
                                    kCounted = "Counted", kFailed = "Failed";
  static constexpr std::size_t kClassesMax = 64;  // furtherClasses counts the rest

  std::string key;
  std::string uid;
  std::string state;
  std::string reason;  // if Failed: PathForbidden, PathNotFound, FormatInvalid, ReadFailed
  std::string message;
  // Results of the last successful count, also while another count runs or fails. Absent before the
  // first.
  std::optional<std::int64_t> samples;
  std::int64_t bytes = 0;
  std::string inexact;  // reason why samples may be incomplete; "": exact
  std::int64_t malformed = 0;
  std::optional<EdgeMalformed> first_malformed;
  std::vector<EdgeClassCount> classes;
  std::int64_t further_classes = 0;
  std::string header;
  std::string fingerprint;
  // RFC 3339, by the node's clock: last time the node found a change. For display only, because
  // clocks differ.
  std::string time;
  Json unknown;
  static void describe(Type<EdgeDatasetReport>& t);
};

/// The port of a stream with `listen`.
struct EdgeStreamReport {
  std::string name;
  std::string address;  // HOST:PORT on the node, the same after a restart of the agent; "": none
  std::string message;  // reason why there is no port
  Json unknown;
  friend bool operator==(const EdgeStreamReport&, const EdgeStreamReport&) = default;
  static void describe(Type<EdgeStreamReport>& t);
};

struct EdgeWorkerReport {
  std::string key;
  std::string uid;
  Json report;  // last progress, metrics and results; defined by the job
  std::vector<EdgeStreamReport> streams;
  Json unknown;
  const EdgeStreamReport* find_stream(std::string_view name) const;
  static void describe(Type<EdgeWorkerReport>& t);
};

struct EdgeShareReport {
  static constexpr std::string_view kPending = "Pending", kReady = "Ready", kFailed = "Failed";

  std::string key;
  std::string path;  // the reported path; the share may have another path by now
  std::string state;
  std::string reason;  // if Failed: PathForbidden, PathNotFound, TooLarge, ReadFailed
  std::string message;
  std::string snapshot;  // name of the shared snapshot; "": none yet
  std::int64_t bytes = 0;
  std::int64_t files = 0;
  std::string relayed;  // name of the snapshot that the registry has; "": none
  // If another snapshot is to be relayed: Relaying, RelayMissing, RelayFull, RelayFailed.
  std::string relay_reason;
  std::string relay_message;
  Json unknown;
  static void describe(Type<EdgeShareReport>& t);
};

struct EdgeReplicaReport {
  static constexpr std::string_view kPending = "Pending", kCopying = "Copying",
                                    kCurrent = "Current", kFailed = "Failed";

  std::string key;
  std::string uid;
  std::string state;
  // If Failed or Copying: SourceUnreachable, SourceChanged, DiskFull, Refused, NoIdentity.
  std::string reason;
  std::string message;
  std::string snapshot;  // snapshot of the copy that readers see; "": none
  std::string path;      // path of that copy for readers
  std::int64_t bytes = 0;
  std::int64_t bytes_done = 0;   // received bytes of a long copy
  std::int64_t bytes_total = 0;  // size of that copy; 0: no long copy
  // The node reaches no source for some time, or got the last copy through the registry.
  bool relay = false;
  Json unknown;
  static void describe(Type<EdgeReplicaReport>& t);
};

/// The bytes that the node read. The file may have changed since.
struct EdgeFileReport {
  static constexpr std::string_view kReading = "Reading", kRead = "Read", kFailed = "Failed";

  std::string key;
  std::string uid, path, version;  // as requested
  std::string state;
  std::string message;  // if Failed
  std::string sha256;   // if Read
  std::int64_t bytes = 0;
  Json unknown;
  friend bool operator==(const EdgeFileReport&, const EdgeFileReport&) = default;
  static void describe(Type<EdgeFileReport>& t);
};

struct EdgeDisk {
  std::int64_t capacity_bytes = 0;
  std::int64_t available_bytes = 0;
  Json unknown;
  static void describe(Type<EdgeDisk>& t);
};

/// Texts for printer columns, made by summarize().
struct EdgeSummary {
  std::string models;    // "1/2": one of two models serves its target or has it ready
  std::string datasets;  // "3/3": counted datasets
  std::string disk;      // "3.4Gi free of 58Gi", "full: 3Mi free of 400Mi"
  friend bool operator==(const EdgeSummary&, const EdgeSummary&) = default;
  static void describe(Type<EdgeSummary>& t);
};

struct EdgeNodeStatus {
  std::int64_t observed_generation = 0;
  std::string agent_version;
  std::string model_root;
  std::string worker_root;                  // directory of the workers' tokens
  std::string worker_socket_directory;      // directory of the agent's socket for workers; "": none
  std::optional<std::int64_t> worker_user;  // owner of both
  std::string address;
  std::vector<std::string> file_roots;  // pods may read Models with paths below these
  std::vector<std::string> dataset_roots;
  EdgeDisk disk;
  std::vector<meta::Condition> conditions;
  std::vector<EdgeModelReport> models;
  std::vector<EdgeDatasetReport> datasets;
  std::vector<EdgeWorkerReport> workers;
  std::string peer_url;  // as reported by the node; use usable_peer_url()
  std::vector<EdgeShareReport> shares;
  std::vector<EdgeReplicaReport> replicas;
  std::vector<EdgeFileReport> files;
  std::string last_seen;  // set while the agent is disconnected, with the condition Connected
  EdgeSummary summary;    // result of summarize(), written by the agent
  Json unknown;
  const EdgeModelReport* find_model(std::string_view key) const;
  const EdgeDatasetReport* find_dataset(std::string_view key) const;
  const EdgeWorkerReport* find_worker(std::string_view key) const;
  /// True if the administrator of the node lets pods read the path: it is below one of file_roots.
  bool allows_path(std::string_view path) const;
  /// The same for datasets: also below one of dataset_roots.
  bool allows_dataset(std::string_view path) const;
  /// URL at which other nodes copy shares. "": this node shares nothing, or its URL is invalid.
  std::string usable_peer_url() const;
  Json to_json() const;
  static void describe(Type<EdgeNodeStatus>& t);
};

struct EdgeNode {
  meta::ObjectMeta metadata;
  EdgeNodeSpec spec;
  EdgeNodeStatus status;
  Json unknown;

  static const Kind& kind();
  static const meta::Resource& resource() { return kind().resource; }
  static Result<EdgeNode> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<EdgeNode>& t);
};

}  // namespace varda::api
