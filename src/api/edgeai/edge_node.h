// EdgeNode (edgeai.io/v1alpha1, cluster-scoped): the operator's work list for a node in spec, the node's report in status.
//
// The agent creates it and writes status; controllers/edgenode is the only writer of spec.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/kind.h"
#include "meta/object.h"

namespace varda::api {

template <typename T>
class Type;

/// The name under which other nodes ask a node for files, and that its certificate says: no gateway has such a name, and no host.
std::string peer_name(std::string_view node);

/// https://HOST or https://HOST:PORT and nothing more. Who asks a node for files appends a path: with anything else the node would
/// choose what others ask, and whom.
bool is_peer_url(std::string_view url);

/// A node that has files, or is about to.
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
  std::vector<std::string> mirrors;  // further URLs of the same archive, after `url`
  std::string credentials;           // NAMESPACE/NAME of the Secret for all of them; "" none
  // The same archive from node to node (docs/design/015).
  std::vector<EdgeReplicaSource> peers;  // asked before url, in this order
  std::vector<std::string> share_with;   // nodes that may have it from this one, which keeps the archive for them
  Json unknown;
  static void describe(Type<EdgeModelVersion>& t);
};

/// How a server tells which version it serves. The members that are JSON pointers (RFC 6901) lead into one item of the list.
/// A new object is how the Open Inference Protocol's repository index has it.
struct EdgeStatusReading {
  std::string path = "/v2/repository/index";
  std::string method = "POST";  // POST sends {}
  std::string list;             // pointer into the answer: the versions; "" the answer itself. An object is a list of one
  std::string name = "/name";   // of the model the item speaks of; "" items speak of no other
  std::string version = "/version";
  std::string state = "/state";  // "" an item that names a version says that it serves
  std::vector<std::string> ready{"READY"};
  std::vector<std::string> loading{"LOADING"};
  std::string code = "/code";       // of a failure, one word
  std::string message = "/reason";  // why the version is in another state; "" and what `quiet` has are no failures
  std::vector<std::string> quiet{"unloaded"};
  Json unknown;
  friend bool operator==(const EdgeStatusReading&, const EdgeStatusReading&) = default;
  static void describe(Type<EdgeStatusReading>& t);
};

struct EdgeModelServing {
  std::string url;                           // where the pod answers
  std::optional<EdgeStatusReading> reading;  // absent: the Open Inference Protocol's
  Json unknown;
  static void describe(Type<EdgeModelServing>& t);
};

struct EdgeModel {
  static constexpr std::string_view kTarget = "target", kNumbered = "numbered";

  std::string key;  // NAMESPACE/NAME of the InferenceModel, or NAMESPACE/NAME.WORKER of a job's worker
  std::string model_name;
  std::string framework;
  std::string layout;               // how versions are shown to the server: kTarget ("" too), kNumbered (artifact/numbered_view.h)
  std::vector<std::string> beside;  // of kNumbered: files at the root of the active version that stand beside the numbers
  std::vector<EdgeModelVersion> versions;
  std::string target;
  std::optional<EdgeModelServing> serving;
  Json cascade;  // an object: what the file cascade.json beside `target` says, its server's business; null: there is no such file
  Json unknown;
  static void describe(Type<EdgeModel>& t);
};

struct EdgeDataset {
  std::string key;  // RESOURCE.GROUP/NAMESPACE/NAME: "datasets.edgeai.io/default/faces"
  std::string uid;  // of that object: one made anew under the name is another dataset
  std::string path;
  std::string format;
  std::string header;                // auto, yes, no; "" auto
  std::int64_t recount_seconds = 0;  // every byte is read again after so long; 0: the agent's own period
  Json unknown;
  static void describe(Type<EdgeDataset>& t);
};

struct EdgeWorker {
  std::string key;  // NAMESPACE/NAME
  std::string uid;
  std::string owner;  // KIND/NAME of the job, for people
  Json assignment;    // what the worker reads; its owner's business
  Json unknown;
  static void describe(Type<EdgeWorker>& t);
};

/// Files of this node that others copy (docs/design/015).
struct EdgeShare {
  std::string key;                 // as of datasets, models.GROUP/NAMESPACE/NAME too
  std::string path;                // "" where this node has a copy of its own under the key, and shares that
  std::vector<std::string> nodes;  // who may have it
  Json unknown;
  static void describe(Type<EdgeShare>& t);
};

/// Files of another node to have a copy of.
struct EdgeReplica {
  std::string key;
  std::string uid;
  std::string snapshot;  // the name of what to have; "": not known yet
  std::vector<EdgeReplicaSource> sources;
  Json unknown;
  static void describe(Type<EdgeReplica>& t);
};

struct EdgeNodeSpec {
  std::vector<EdgeModel> models;
  std::vector<EdgeDataset> datasets;
  std::vector<EdgeWorker> workers;
  std::vector<EdgeShare> shares;
  std::vector<EdgeReplica> replicas;
  Json unknown;
  const EdgeModel* find_model(std::string_view key) const;
  const EdgeDataset* find_dataset(std::string_view key) const;
  const EdgeWorker* find_worker(std::string_view key) const;
  Json to_json() const;
  static void describe(Type<EdgeNodeSpec>& t);
};

struct EdgeVersionReport {
  static constexpr std::string_view kPending = "Pending", kDownloading = "Downloading", kReady = "Ready", kFailed = "Failed";

  std::string version;
  std::string state;
  std::string reason;
  std::string message;
  std::string sha256;  // of the archive this speaks of: a manifest may give the name to another one; "" an agent that does not tell
  std::int64_t bytes = 0;
  std::int64_t bytes_done = 0;   // of a download that takes long; 0: nothing to tell
  std::int64_t bytes_total = 0;  // 0: not known
  bool shared = false;           // the archive is kept here, and others can have it
  Json unknown;
  static void describe(Type<EdgeVersionReport>& t);
};

struct EdgeServingReport {
  static constexpr std::string_view kReady = "Ready", kLoading = "Loading", kFailed = "Failed", kUnreachable = "Unreachable";

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
  std::string exposed;  // what `target` names on disk; "" none
  std::vector<EdgeVersionReport> versions;
  std::optional<EdgeServingReport> serving;
  Json cascade;  // what the server says of its tiers, the counters summed up over its starts (docs/design/017); null: nothing
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
  std::string file;       // below the dataset's path; "" where that is the file
  std::int64_t line = 0;  // from 1; 0 where lines mean nothing
  std::int64_t byte = 0;
  std::string why;
  Json unknown;
  static void describe(Type<EdgeMalformed>& t);
};

struct EdgeDatasetReport {
  static constexpr std::string_view kPending = "Pending", kCounting = "Counting", kCounted = "Counted", kFailed = "Failed";
  static constexpr std::size_t kClassesMax = 64;  // the rest is furtherClasses

  std::string key;
  std::string uid;
  std::string state;
  std::string reason;  // of Failed: PathForbidden, PathNotFound, FormatInvalid, ReadFailed
  std::string message;
  // Of the last count that ended well, also while another one runs or fails. Absent before the first.
  std::optional<std::int64_t> samples;
  std::int64_t bytes = 0;
  std::string inexact;  // why samples may not be all there is; "" it is exact
  std::int64_t malformed = 0;
  std::optional<EdgeMalformed> first_malformed;
  std::vector<EdgeClassCount> classes;
  std::int64_t further_classes = 0;
  std::string header;
  std::string fingerprint;
  std::string time;  // RFC 3339, of the node's clock: when that was last found changed; for people, nothing is ordered by it
  Json unknown;
  static void describe(Type<EdgeDatasetReport>& t);
};

struct EdgeWorkerReport {
  std::string key;
  std::string uid;
  Json report;  // what the worker last said: progress, metrics, results; its owner's business
  Json unknown;
  static void describe(Type<EdgeWorkerReport>& t);
};

struct EdgeShareReport {
  static constexpr std::string_view kPending = "Pending", kReady = "Ready", kFailed = "Failed";

  std::string key;
  std::string path;  // what this speaks of: the share may be of another one by now
  std::string state;
  std::string reason;  // of Failed: PathForbidden, PathNotFound, TooLarge, ReadFailed
  std::string message;
  std::string snapshot;  // the name of what there is; "" none yet
  std::int64_t bytes = 0;
  std::int64_t files = 0;
  Json unknown;
  static void describe(Type<EdgeShareReport>& t);
};

struct EdgeReplicaReport {
  static constexpr std::string_view kPending = "Pending", kCopying = "Copying", kCurrent = "Current", kFailed = "Failed";

  std::string key;
  std::string uid;
  std::string state;
  std::string reason;  // of Failed and Copying: SourceUnreachable, SourceChanged, DiskFull, Refused
  std::string message;
  std::string snapshot;  // the name of the copy that readers see; "" none
  std::string path;      // where they see it
  std::int64_t bytes = 0;
  std::int64_t bytes_done = 0;   // of a copy that takes long
  std::int64_t bytes_total = 0;  // of it; 0: nothing to tell
  Json unknown;
  static void describe(Type<EdgeReplicaReport>& t);
};

struct EdgeDisk {
  std::int64_t capacity_bytes = 0;
  std::int64_t available_bytes = 0;
  Json unknown;
  static void describe(Type<EdgeDisk>& t);
};

/// For people, in columns: what summarize() makes of the rest.
struct EdgeSummary {
  std::string models;    // "1/2": of two that the node shall have, one serves its target or has it ready
  std::string datasets;  // "3/3": counted
  std::string disk;      // "3.4Gi free of 58Gi", "full: 3Mi free of 400Mi"
  friend bool operator==(const EdgeSummary&, const EdgeSummary&) = default;
  static void describe(Type<EdgeSummary>& t);
};

struct EdgeNodeStatus {
  std::int64_t observed_generation = 0;
  std::string agent_version;
  std::string model_root;
  std::string worker_root;              // of the workers' tokens
  std::string worker_socket_directory;  // of the socket that workers ask at; "": there is none
  std::string address;
  EdgeDisk disk;
  std::vector<meta::Condition> conditions;
  std::vector<EdgeModelReport> models;
  std::vector<EdgeDatasetReport> datasets;
  std::vector<EdgeWorkerReport> workers;
  std::string peer_url;  // as the node says; for others usable_peer_url() counts
  std::vector<EdgeShareReport> shares;
  std::vector<EdgeReplicaReport> replicas;
  std::string last_seen;  // of who writes the condition Connected: set while the agent is disconnected
  EdgeSummary summary;    // what summarize() says, written by the agent with the rest
  Json unknown;
  const EdgeModelReport* find_model(std::string_view key) const;
  const EdgeDatasetReport* find_dataset(std::string_view key) const;
  /// Where other nodes ask for shares. "": this node shares nothing, or names a place where nobody is to ask.
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
