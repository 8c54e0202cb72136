#include "api/edgeai/edge_node.h"

#include <algorithm>

#include "api/describe.h"
#include "codec/json.h"
#include "meta/node_address.h"

namespace varda::api {

namespace {

template <typename T>
const T* find_key(const std::vector<T>& list, std::string T::*key, std::string_view wanted) {
  for (const T& item : list) {
    if (item.*key == wanted) return &item;
  }
  return nullptr;
}

}  // namespace

const EdgeModel* EdgeNodeSpec::find_model(std::string_view key) const { return find_key(models, &EdgeModel::key, key); }
const EdgeDataset* EdgeNodeSpec::find_dataset(std::string_view key) const { return find_key(datasets, &EdgeDataset::key, key); }
const EdgeWorker* EdgeNodeSpec::find_worker(std::string_view key) const { return find_key(workers, &EdgeWorker::key, key); }
const EdgeDatasetReport* EdgeNodeStatus::find_dataset(std::string_view key) const {
  return find_key(datasets, &EdgeDatasetReport::key, key);
}
const EdgeModelReport* EdgeNodeStatus::find_model(std::string_view key) const {
  return find_key(models, &EdgeModelReport::key, key);
}
const EdgeVersionReport* EdgeModelReport::find_version(std::string_view version) const {
  return find_key(versions, &EdgeVersionReport::version, version);
}

std::string peer_name(std::string_view node) { return std::string(node) + ".node.varda"; }

bool is_peer_url(std::string_view url) {
  constexpr std::string_view kScheme = "https://", kDigits = "0123456789";
  constexpr std::string_view kHost = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
  if (!url.starts_with(kScheme)) return false;
  std::string_view rest = url.substr(kScheme.size());
  std::size_t host = 0;  // where it ends
  if (rest.starts_with('[')) {
    host = rest.find_first_not_of("0123456789abcdefABCDEF:.", 1);
    if (host == std::string_view::npos || rest[host] != ']' || host < 3) return false;
    ++host;
  } else {
    host = std::min(rest.find_first_not_of(kHost), rest.size());
    if (host == 0) return false;
  }
  rest.remove_prefix(host);
  if (rest.empty()) return true;
  const std::string_view port = rest.substr(1);
  if (rest[0] != ':' || port.empty() || port.size() > 5 || port.find_first_not_of(kDigits) != std::string_view::npos) return false;
  const int number = std::stoi(std::string(port));
  return number >= 1 && number <= 65535;
}

std::string EdgeNodeStatus::usable_peer_url() const { return is_peer_url(peer_url) ? peer_url : ""; }

void EdgeModelVersion::describe(Type<EdgeModelVersion>& t) {
  t.doc("A version to hold on disk.");
  t.field("version", &EdgeModelVersion::version, "Name of the version.").required().length(1, 63);
  t.field("url", &EdgeModelVersion::url, "Where the archive is.").required().length(0, 2048);
  t.field("sha256", &EdgeModelVersion::sha256, "SHA-256 of the archive.").required().length(0, 64);
  t.field("mirrors", &EdgeModelVersion::mirrors, "Further URLs of the same archive, tried after url.")
      .items_max(8)
      .each_length(1, 2048);
  t.field("credentials", &EdgeModelVersion::credentials, "NAMESPACE/NAME of the Secret that the sources ask for.").length(0, 317);
  t.field("peers", &EdgeModelVersion::peers, "Nodes beside this one that have the archive, or are about to: asked before url.")
      .items_max(8)
      .list_map({"node"});
  t.field("shareWith", &EdgeModelVersion::share_with,
          "Nodes that may have the archive from this one, which keeps it for them beside what it unpacked.")
      .items_max(512)
      .each_length(1, 253);
  t.keep_unknown(&EdgeModelVersion::unknown);
}

void EdgeStatusReading::describe(Type<EdgeStatusReading>& t) {
  using R = EdgeStatusReading;
  t.doc("How the server tells which version it serves. Pointers are those of RFC 6901, into an item of the list.");
  t.field("path", &R::path, "What is asked.").required().length(1, 1024);
  t.field("method", &R::method, "GET, or POST with an empty object.").always().one_of({"GET", "POST"});
  t.field("list", &R::list, "Pointer to the versions in the answer. Empty: the answer is the list.").always().length(0, 253);
  t.field("name", &R::name, "Pointer to the model's name. Empty: items speak of no other model.").always().length(0, 253);
  t.field("version", &R::version, "Pointer to the version.").always().length(0, 253);
  t.field("state", &R::state, "Pointer to its state. Empty: what is listed serves.").always().length(0, 253);
  t.field("ready", &R::ready, "States of a version that serves.").always().items_max(16).each_length(1, 63);
  t.field("loading", &R::loading, "States of a version on its way.").always().items_max(16).each_length(1, 63);
  t.field("code", &R::code, "Pointer to a failure's reason, one word.").always().length(0, 253);
  t.field("message", &R::message, "Pointer to why a version is in another state.").always().length(0, 253);
  t.field("quiet", &R::quiet, "What stands there without being a failure.").always().items_max(16).each_length(1, 253);
  t.keep_unknown(&R::unknown);
}

void EdgeModelServing::describe(Type<EdgeModelServing>& t) {
  t.doc("Where the model's pod answers.");
  t.field("url", &EdgeModelServing::url, "Base URL of the server.").required().length(0, 2048);
  t.field("reading", &EdgeModelServing::reading,
          "How it tells which version it serves. Absent: by the Open Inference Protocol's repository index.");
  t.keep_unknown(&EdgeModelServing::unknown);
}

void EdgeModel::describe(Type<EdgeModel>& t) {
  t.doc("A model that the node holds and serves.");
  t.field("key", &EdgeModel::key, "NAMESPACE/NAME of the InferenceModel, or NAMESPACE/NAME.WORKER of a job's worker.")
      .required()
      .length(1, 317);
  t.field("modelName", &EdgeModel::model_name, "Name of the model as its server calls it.").length(0, 63);
  t.field("framework", &EdgeModel::framework, "What the model is made with.").length(0, 63);
  t.field("layout", &EdgeModel::layout,
          "How versions are shown to the server. target: a directory each, and the file target names the active one. numbered: "
          "directories with whole numbers, of which the greatest is the active one. Absent: target.")
      .one_of({"target", "numbered"});
  t.field("beside", &EdgeModel::beside, "With numbered: files at the root of the active version that stand beside the numbers.")
      .items_max(16)
      .each_length(1, 253);
  t.field("versions", &EdgeModel::versions, "Versions to hold on disk.").items_max(64).list_map({"version"});
  t.field("target", &EdgeModel::target, "The version to expose as the active one.").length(0, 63);
  t.field("serving", &EdgeModel::serving, "Where the model's pod answers. Absent: nothing is served.");
  t.field(
      "cascade", &EdgeModel::cascade,
      "What the file cascade.json beside the versions says: the tiers of joint inference. At most 64 KiB. Absent: no such file.");
  t.keep_unknown(&EdgeModel::unknown);
}

void EdgeDataset::describe(Type<EdgeDataset>& t) {
  t.doc("A dataset whose samples the node counts.");
  t.field("key", &EdgeDataset::key, "RESOURCE.GROUP/NAMESPACE/NAME of the Dataset.").required().length(1, 400);
  t.field("uid", &EdgeDataset::uid, "metadata.uid of the Dataset.").length(0, 64);
  t.field("path", &EdgeDataset::path, "Where it is on the node.").required().length(1, 4096);
  t.field("format", &EdgeDataset::format, "What one sample is.").required().length(1, 63);
  t.field("header", &EdgeDataset::header, "Whether the first record of csv and tsv names the columns: auto, yes or no.")
      .length(0, 8);
  t.field("recountSeconds", &EdgeDataset::recount_seconds,
          "After so long every byte is read again, not only what was appended. Absent: the agent's period.")
      .format("int64");
  t.keep_unknown(&EdgeDataset::unknown);
}

void EdgeWorker::describe(Type<EdgeWorker>& t) {
  t.doc("A worker of a job that is expected to register with the agent.");
  t.field("key", &EdgeWorker::key, "NAMESPACE/NAME of the worker.").required().length(1, 317);
  t.field("uid", &EdgeWorker::uid, "metadata.uid of its job.").length(0, 64);
  t.field("owner", &EdgeWorker::owner, "KIND/NAME of its job.").length(0, 317);
  t.field("assignment", &EdgeWorker::assignment, "What the worker reads as its assignment.");
  t.keep_unknown(&EdgeWorker::unknown);
}

void EdgeShare::describe(Type<EdgeShare>& t) {
  t.doc("Files of this node that others copy.");
  t.field("key", &EdgeShare::key, "RESOURCE.GROUP/NAMESPACE/NAME of what they belong to.").required().length(1, 400);
  t.field("path", &EdgeShare::path, "Where they are. Absent: the copy that this node has under the key.").length(0, 4096);
  t.field("nodes", &EdgeShare::nodes, "Nodes that may have them.").items_max(512).each_length(1, 253);
  t.keep_unknown(&EdgeShare::unknown);
}

void EdgeReplicaSource::describe(Type<EdgeReplicaSource>& t) {
  t.doc("A node that has the files.");
  t.field("node", &EdgeReplicaSource::node, "Name of the node, as in its certificate.").required().length(1, 253);
  t.field("url", &EdgeReplicaSource::url, "Its status.peerUrl.").required().length(1, 2048);
  t.keep_unknown(&EdgeReplicaSource::unknown);
}

void EdgeReplica::describe(Type<EdgeReplica>& t) {
  t.doc("Files of another node to have a copy of.");
  t.field("key", &EdgeReplica::key, "RESOURCE.GROUP/NAMESPACE/NAME of what they belong to.").required().length(1, 400);
  t.field("uid", &EdgeReplica::uid, "metadata.uid of that object.").length(0, 64);
  t.field("snapshot", &EdgeReplica::snapshot,
          "Name of the snapshot to have. Absent: the one that has the files has not told it yet.")
      .length(0, 64);
  t.field("sources", &EdgeReplica::sources, "Nodes to ask, in this order.").items_max(8).list_map({"node"});
  t.keep_unknown(&EdgeReplica::unknown);
}

void EdgeNodeSpec::describe(Type<EdgeNodeSpec>& t) {
  t.doc("What the node shall do. Written by the operator only.");
  t.field("models", &EdgeNodeSpec::models, "Models to hold and serve.").items_max(128).list_map({"key"});
  t.field("datasets", &EdgeNodeSpec::datasets, "Datasets to watch and count.").items_max(128).list_map({"key"});
  t.field("workers", &EdgeNodeSpec::workers, "Workers to expect.").items_max(64).list_map({"key"});
  t.field("shares", &EdgeNodeSpec::shares, "Files that other nodes copy.").items_max(128).list_map({"key"});
  t.field("replicas", &EdgeNodeSpec::replicas, "Files of other nodes to have a copy of.").items_max(128).list_map({"key"});
  t.keep_unknown(&EdgeNodeSpec::unknown);
}

void EdgeVersionReport::describe(Type<EdgeVersionReport>& t) {
  t.doc("A version on the node.");
  t.field("version", &EdgeVersionReport::version, "Name of the version.").required().length(1, 63);
  t.field("state", &EdgeVersionReport::state, "How far it is.").required().one_of({"Pending", "Downloading", "Ready", "Failed"});
  t.field("reason", &EdgeVersionReport::reason,
          "Why the last attempt failed: DownloadFailed, DigestMismatch, UnsafeArchive, BadLayout, DiskFull, SourceForbidden, "
          "CredentialsMissing, CredentialsInvalid or CredentialsForbidden.")
      .length(0, 128);
  t.field("message", &EdgeVersionReport::message, "Why the last attempt failed, for people.").length(0, 4096);
  t.field("sha256", &EdgeVersionReport::sha256, "SHA-256 of the archive this speaks of.").length(0, 64);
  t.field("bytes", &EdgeVersionReport::bytes, "Size on disk.").format("int64");
  t.field("bytesDone", &EdgeVersionReport::bytes_done,
          "Of a download that takes longer than 10 s: bytes of the archive that are there. Written every 10 s at most.")
      .format("int64");
  t.field("bytesTotal", &EdgeVersionReport::bytes_total,
          "Of such a download: size of the archive; absent: the source does not tell.")
      .format("int64");
  t.field("shared", &EdgeVersionReport::shared, "The archive is kept on the node, and others can have it.");
  t.keep_unknown(&EdgeVersionReport::unknown);
}

void EdgeServingReport::describe(Type<EdgeServingReport>& t) {
  t.doc("What the model's server says.");
  t.field("version", &EdgeServingReport::version, "The version that answers.").length(0, 63);
  t.field("state", &EdgeServingReport::state, "State of the server.")
      .required()
      .one_of({"Ready", "Loading", "Failed", "Unreachable"});
  t.field("failedVersion", &EdgeServingReport::failed_version, "The version that did not load.").length(0, 63);
  t.field("reason", &EdgeServingReport::reason, "Why, as one word.").length(0, 128);
  t.field("message", &EdgeServingReport::message, "Why, for people.").length(0, 4096);
  t.keep_unknown(&EdgeServingReport::unknown);
}

void EdgeModelReport::describe(Type<EdgeModelReport>& t) {
  t.doc("A model on the node.");
  t.field("key", &EdgeModelReport::key, "NAMESPACE/NAME of the InferenceModel, or NAMESPACE/NAME.WORKER of a job's worker.")
      .required()
      .length(1, 317);
  t.field("exposed", &EdgeModelReport::exposed, "The version that the server is told to serve; empty: none.").length(0, 63);
  t.field("versions", &EdgeModelReport::versions, "Versions on the node.").items_max(64).list_map({"version"});
  t.field("serving", &EdgeModelReport::serving, "What the model's server says.");
  t.field(
      "cascade", &EdgeModelReport::cascade,
      "What it says of the tiers of joint inference: their state at once when it changes, counts every 10 s at most. The counters "
      "are summed up over its starts and grow within an epoch.");
  t.keep_unknown(&EdgeModelReport::unknown);
}

void EdgeClassCount::describe(Type<EdgeClassCount>& t) {
  t.doc("How many samples or annotations a class has.");
  t.field("name", &EdgeClassCount::name, "Name of the class.").required().length(1, 256);
  t.field("count", &EdgeClassCount::count, "How many there are.").required().format("int64");
  t.keep_unknown(&EdgeClassCount::unknown);
}

void EdgeMalformed::describe(Type<EdgeMalformed>& t) {
  t.doc("Something that stands where a sample would and is none.");
  t.field("file", &EdgeMalformed::file, "Below the dataset's path; absent where that is the file.").length(0, 4096);
  t.field("line", &EdgeMalformed::line, "From 1; absent where lines mean nothing.").format("int64");
  t.field("byte", &EdgeMalformed::byte, "Offset of its record.").format("int64").always();
  t.field("why", &EdgeMalformed::why, "What is wrong with it.").length(0, 1024);
  t.keep_unknown(&EdgeMalformed::unknown);
}

void EdgeDatasetReport::describe(Type<EdgeDatasetReport>& t) {
  using R = EdgeDatasetReport;
  t.doc("A dataset on the node. The figures are those of the last count that ended well.");
  t.field("key", &R::key, "RESOURCE.GROUP/NAMESPACE/NAME of the Dataset.").required().length(1, 400);
  t.field("uid", &R::uid, "metadata.uid of the Dataset that was counted.").length(0, 64);
  t.field("state", &R::state, "How far it is.").required().one_of({"Pending", "Counting", "Counted", "Failed"});
  t.field("reason", &R::reason, "Why it failed: PathForbidden, PathNotFound, FormatInvalid or ReadFailed.").length(0, 128);
  t.field("message", &R::message, "Why it failed, for people.").length(0, 4096);
  t.field("samples", &R::samples, "How many samples there are. Absent: not counted yet.").format("int64");
  t.field("bytes", &R::bytes, "Bytes that were counted.").format("int64");
  t.field("inexact", &R::inexact, "Why samples may not be all there is. Absent: the count is exact.").length(0, 1024);
  t.field("malformed", &R::malformed, "How many records are none.").format("int64");
  t.field("firstMalformed", &R::first_malformed, "The first of them.");
  t.field("classes", &R::classes, "How many of each class, where the format knows classes: the first 64 by name.")
      .items_max(EdgeDatasetReport::kClassesMax)
      .list_map({"name"});
  t.field("furtherClasses", &R::further_classes, "How many of all further classes together.").format("int64");
  t.field("header", &R::header, "Whether the first record named the columns: yes or no.").length(0, 8);
  t.field("fingerprint", &R::fingerprint, "Tells one state of the data from another.").length(0, 128);
  t.field("time", &R::time, "When the node found this, by its clock.").length(0, 64);
  t.keep_unknown(&R::unknown);
}

void EdgeWorkerReport::describe(Type<EdgeWorkerReport>& t) {
  t.doc("What a worker on the node last said.");
  t.field("key", &EdgeWorkerReport::key, "NAMESPACE/NAME of the worker.").required().length(1, 317);
  t.field("uid", &EdgeWorkerReport::uid, "metadata.uid of its job.").length(0, 64);
  t.field("report", &EdgeWorkerReport::report, "Its progress, metrics and results.");
  t.keep_unknown(&EdgeWorkerReport::unknown);
}

void EdgeShareReport::describe(Type<EdgeShareReport>& t) {
  using R = EdgeShareReport;
  t.doc("Files of this node that others copy.");
  t.field("key", &R::key, "RESOURCE.GROUP/NAMESPACE/NAME of what they belong to.").required().length(1, 400);
  t.field("path", &R::path, "Which files this speaks of. Absent: the copy that this node has under the key.").length(0, 4096);
  t.field("state", &R::state, "Whether others can have them.").required().one_of({"Pending", "Ready", "Failed"});
  t.field("reason", &R::reason, "Why not: PathForbidden, PathNotFound, TooLarge or ReadFailed.").length(0, 128);
  t.field("message", &R::message, "Why not, for people.").length(0, 4096);
  t.field("snapshot", &R::snapshot, "Name of what there is.").length(0, 64);
  t.field("bytes", &R::bytes, "Size of all files.").format("int64");
  t.field("files", &R::files, "How many files there are.").format("int64");
  t.keep_unknown(&R::unknown);
}

void EdgeReplicaReport::describe(Type<EdgeReplicaReport>& t) {
  using R = EdgeReplicaReport;
  t.doc("A copy of another node's files.");
  t.field("key", &R::key, "RESOURCE.GROUP/NAMESPACE/NAME of what they belong to.").required().length(1, 400);
  t.field("uid", &R::uid, "metadata.uid of that object.").length(0, 64);
  t.field("state", &R::state, "How far it is.").required().one_of({"Pending", "Copying", "Current", "Failed"});
  t.field("reason", &R::reason, "Why it is not there: SourceUnreachable, SourceChanged, DiskFull or Refused.").length(0, 128);
  t.field("message", &R::message, "Why it is not there, for people.").length(0, 4096);
  t.field("snapshot", &R::snapshot, "Name of the copy that readers see.").length(0, 64);
  t.field("path", &R::path, "Where they see it.").length(0, 4096);
  t.field("bytes", &R::bytes, "Size of that copy.").format("int64");
  t.field("bytesDone", &R::bytes_done, "Of a copy that takes longer than 10 s: bytes that came. Written every 10 s at most.")
      .format("int64");
  t.field("bytesTotal", &R::bytes_total, "Of such a copy: bytes that must come.").format("int64");
  t.keep_unknown(&R::unknown);
}

void EdgeDisk::describe(Type<EdgeDisk>& t) {
  t.doc("The disk of the models, rounded so that it changes rarely.");
  t.field("capacityBytes", &EdgeDisk::capacity_bytes, "Size of the file system.").format("int64");
  t.field("availableBytes", &EdgeDisk::available_bytes, "Free for models.").format("int64");
  t.keep_unknown(&EdgeDisk::unknown);
}

void EdgeSummary::describe(Type<EdgeSummary>& t) {
  t.doc("The rest in a few words, for columns.");
  t.field("models", &EdgeSummary::models, "How many models are ready, of those the node shall hold.").length(0, 32);
  t.field("datasets", &EdgeSummary::datasets, "How many datasets are counted, of those the node shall watch.").length(0, 32);
  t.field("disk", &EdgeSummary::disk, "How much of the disk is free for models.").length(0, 64);
}

void EdgeNodeStatus::describe(Type<EdgeNodeStatus>& t) {
  using S = EdgeNodeStatus;
  t.doc("The node's report. Written by its agent, on change only; conditions and lastSeen are written for it.");
  t.field("observedGeneration", &S::observed_generation, "metadata.generation that the agent works on.").format("int64");
  t.field("agentVersion", &S::agent_version, "Version of the agent.").length(0, 63);
  t.field("modelRoot", &S::model_root, "Directory of the exposed models on the node; pods mount MODELROOT/NAMESPACE/NAME.")
      .length(0, 4096);
  t.field("workerRoot", &S::worker_root, "Directory of the workers' tokens on the node.").length(0, 4096);
  t.field("workerSocketDirectory", &S::worker_socket_directory,
          "Directory of the socket on the node at which workers ask the agent. Absent: there is none.")
      .length(0, 4096);
  t.field("address", &S::address, "IP address of the node.").length(0, 253);
  t.field("disk", &S::disk, "The disk of the models.");
  t.field("conditions", &S::conditions, "Connected: the agent watches its work list.").items_max(16).list_map({"type"});
  t.field("models", &S::models, "Models on the node.").items_max(128).list_map({"key"});
  t.field("datasets", &S::datasets, "Datasets on the node.").items_max(128).list_map({"key"});
  t.field("workers", &S::workers, "Workers on the node.").items_max(64).list_map({"key"});
  t.field("peerUrl", &S::peer_url, "Where other nodes ask for the files that this one shares.").length(0, 2048);
  t.field("shares", &S::shares, "Files that others copy.").items_max(128).list_map({"key"});
  t.field("replicas", &S::replicas, "Copies of other nodes' files.").items_max(128).list_map({"key"});
  t.field("lastSeen", &S::last_seen, "When the connection was lost. Absent: the agent is connected, or was never seen.")
      .format("date-time");
  t.field("summary", &S::summary, "The rest in a few words, for columns.");
  t.keep_unknown(&S::unknown);
}

void EdgeNode::describe(Type<EdgeNode>& t) {
  t.doc("A node that runs an agent: the operator's work list in spec, the node's report in status.");
  t.field("metadata", &EdgeNode::metadata, "Standard object metadata; the name is the node's.");
  t.field("spec", &EdgeNode::spec, "What the node shall do.");
  t.field("status", &EdgeNode::status, "The node's report.");
  t.keep_unknown(&EdgeNode::unknown);
}

namespace {

std::vector<meta::StatusCause> check_edge_node_address(const Json& old, const Json& object) {
  std::vector<meta::StatusCause> causes;
  for (const meta::AddressProblem& one : meta::added_address_problems("EdgeNode", old["status"], object["status"])) {
    causes.push_back({"FieldValueInvalid", "Invalid value: " + codec::write_json(Json(one.value)) + ": " + one.message, one.field});
  }
  return causes;
}

}  // namespace

const Kind& EdgeNode::kind() {
  static const Kind kind{
      .resource = {"edgeai.io", "v1alpha1", "EdgeNode", "edgenodes", false},
      .singular = "edgenode",
      .short_names = {"en"},
      .columns =
          {
              {"Connected", "string", ".status.conditions[?(@.type==\"Connected\")].status",
               "Whether the agent watches its work list"},
              {"Agent", "string", ".status.agentVersion", "Version of the agent"},
              {"Models", "string", ".status.summary.models", "Models that are ready, of those the node shall hold"},
              {"Datasets", "string", ".status.summary.datasets", "Datasets that are counted, of those the node shall watch"},
              {"Disk", "string", ".status.summary.disk", "How much is free for models"},
              {"LastSeen", "date", ".status.lastSeen", "How long ago the connection was lost; empty while there is one"},
              {"Age", "date", ".metadata.creationTimestamp", ""},
          },
      .scale = {},
      .notes = {"Created by the node's agent. `spec` is written by the operator only: what is put there by hand goes away."},
      .schema = &type_info<EdgeNode>().schema,
      .native = check_edge_node_address,
  };
  return kind;
}

Result<EdgeNode> EdgeNode::from_json(const Json& object) { return read_object<EdgeNode>(object); }
Json EdgeNodeSpec::to_json() const { return write_part(*this); }
Json EdgeNodeStatus::to_json() const { return write_part(*this); }
Json EdgeNode::to_json() const { return write_object(*this); }

}  // namespace varda::api
