#include "api/edgeai/edge_node.h"

#include <algorithm>

#include "api/describe.h"
#include "codec/json.h"
#include "codec/text.h"
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

const EdgeModel* EdgeNodeSpec::find_model(std::string_view key) const {
  return find_key(models, &EdgeModel::key, key);
}
const EdgeDataset* EdgeNodeSpec::find_dataset(std::string_view key) const {
  return find_key(datasets, &EdgeDataset::key, key);
}
const EdgeWorker* EdgeNodeSpec::find_worker(std::string_view key) const {
  return find_key(workers, &EdgeWorker::key, key);
}
const EdgeStream* EdgeWorker::find_stream(std::string_view wanted) const {
  return find_key(streams, &EdgeStream::name, wanted);
}
const EdgeStreamReport* EdgeWorkerReport::find_stream(std::string_view wanted) const {
  return find_key(streams, &EdgeStreamReport::name, wanted);
}
const EdgeWorkerReport* EdgeNodeStatus::find_worker(std::string_view key) const {
  return find_key(workers, &EdgeWorkerReport::key, key);
}
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
  constexpr std::string_view kHost =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
  if (!url.starts_with(kScheme)) return false;
  std::string_view rest = url.substr(kScheme.size());
  std::size_t host = 0;  // end of the host
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
  if (rest[0] != ':' || port.empty() || port.size() > 5 ||
      port.find_first_not_of(kDigits) != std::string_view::npos)
    return false;
  const int number = std::stoi(std::string(port));
  return number >= 1 && number <= 65535;
}

std::string EdgeNodeStatus::usable_peer_url() const {
  return is_peer_url(peer_url) ? peer_url : "";
}

void EdgeModelVersion::describe(Type<EdgeModelVersion>& t) {
  t.doc("A version to store on disk.");
  t.field("version", &EdgeModelVersion::version, "Name of the version.").required().length(1, 63);
  t.field("url", &EdgeModelVersion::url, "URL of the archive.").required().length(0, 2048);
  t.field("sha256", &EdgeModelVersion::sha256, "SHA-256 of the archive.").required().length(0, 64);
  t.field("mirrors", &EdgeModelVersion::mirrors,
          "Further URLs of the same archive, tried after url.")
      .items_max(8)
      .each_length(1, 2048);
  t.field("credentials", &EdgeModelVersion::credentials,
          "NAMESPACE/NAME of the Secret with the credentials for url and mirrors.")
      .length(0, 317);
  t.field("peers", &EdgeModelVersion::peers,
          "Nodes that have the archive, or soon will. They are asked before url.")
      .items_max(8)
      .list_map({"node"});
  t.field("shareWith", &EdgeModelVersion::share_with,
          "Nodes that may copy the archive from this node. This node then keeps the archive beside "
          "the unpacked files.")
      .items_max(512)
      .each_length(1, 253);
  t.keep_unknown(&EdgeModelVersion::unknown);
}

void EdgeStatusQuery::describe(Type<EdgeStatusQuery>& t) {
  using R = EdgeStatusQuery;
  t.doc(
      "How to read the serving version from the server. Pointers (RFC 6901) lead into an item of "
      "the list.");
  t.field("path", &R::path, "Path of the request.").required().length(1, 1024);
  t.field("method", &R::method, "GET, or POST with an empty JSON object.")
      .always()
      .one_of({"GET", "POST"});
  t.field("list", &R::list,
          "JSON pointer (RFC 6901) to the list of versions in the answer. Empty: the answer is the "
          "list. Other pointers lead into "
          "an item of the list.")
      .always()
      .length(0, 253);
  t.field("name", &R::name, "Pointer to the model's name. Empty: all items are about this model.")
      .always()
      .length(0, 253);
  t.field("version", &R::version, "Pointer to the version.").always().length(0, 253);
  t.field("state", &R::state, "Pointer to the version's state. Empty: every listed version serves.")
      .always()
      .length(0, 253);
  t.field("ready", &R::ready, "States of a version that serves.")
      .always()
      .items_max(16)
      .each_length(1, 63);
  t.field("loading", &R::loading, "States of a version that is loading.")
      .always()
      .items_max(16)
      .each_length(1, 63);
  t.field("code", &R::code, "Pointer to the reason of a failure, one word.")
      .always()
      .length(0, 253);
  t.field("message", &R::message, "Pointer to the explanation of any other state.")
      .always()
      .length(0, 253);
  t.field("ignoredMessages", &R::ignored_messages, "Explanations that are not failures.")
      .always()
      .items_max(16)
      .each_length(1, 253);
  t.keep_unknown(&R::unknown);
}

void EdgeModelServing::describe(Type<EdgeModelServing>& t) {
  t.doc("Address of the model's pod.");
  t.field("url", &EdgeModelServing::url, "Base URL of the server.").required().length(0, 2048);
  t.field(
      "statusQuery", &EdgeModelServing::status_query,
      "How to read the serving version. Default: the Open Inference Protocol's repository index.");
  t.keep_unknown(&EdgeModelServing::unknown);
}

void EdgeModel::describe(Type<EdgeModel>& t) {
  t.doc("A model that the node stores and serves.");
  t.field("key", &EdgeModel::key,
          "NAMESPACE/NAME of the InferenceModel, or NAMESPACE/NAME.WORKER of a job's worker.")
      .required()
      .length(1, 317);
  t.field("modelName", &EdgeModel::model_name, "Name of the model at its server.").length(0, 63);
  t.field("framework", &EdgeModel::framework, "Framework of the model.").length(0, 63);
  t.field("layout", &EdgeModel::layout,
          "Layout of the versions for the server. target: one directory per version, and the file "
          "target names the active one. "
          "numbered: directories with whole numbers as names, and the greatest is active. Default: "
          "target.")
      .one_of({"target", "numbered"});
  t.field("extraFiles", &EdgeModel::extra_files,
          "With numbered: files from the root of the active version that are placed beside the "
          "numbered directories.")
      .items_max(16)
      .each_length(1, 253);
  t.field("versions", &EdgeModel::versions, "Versions to store on disk.")
      .items_max(64)
      .list_map({"version"});
  t.field("target", &EdgeModel::target, "The version to expose as active.").length(0, 63);
  t.field("serving", &EdgeModel::serving, "Address of the model's pod. Absent: nothing is served.");
  t.field("joint", &EdgeModel::joint,
          "Content of the file joint.json beside the versions: the tiers of joint inference. At "
          "most 64 KiB. Absent: no such file.");
  t.keep_unknown(&EdgeModel::unknown);
}

void EdgeDataset::describe(Type<EdgeDataset>& t) {
  t.doc("A dataset whose samples the node counts.");
  t.field("key", &EdgeDataset::key, "RESOURCE.GROUP/NAMESPACE/NAME of the Dataset.")
      .required()
      .length(1, 400);
  t.field("uid", &EdgeDataset::uid, "metadata.uid of the Dataset.").length(0, 64);
  t.field("path", &EdgeDataset::path, "Path of the data on the node.").required().length(1, 4096);
  t.field("format", &EdgeDataset::format, "Format of the data.").required().length(1, 63);
  t.field("header", &EdgeDataset::header,
          "Whether the first record of csv and tsv names the columns: auto, yes or no.")
      .length(0, 8);
  t.field("recountSeconds", &EdgeDataset::recount_seconds,
          "Seconds after which the node reads every byte again, not only appended bytes. Default: "
          "the agent's period.")
      .format("int64");
  t.keep_unknown(&EdgeDataset::unknown);
}

void EdgeStream::describe(Type<EdgeStream>& t) {
  t.doc("A TCP connection that the worker may open through its agent.");
  t.field("name", &EdgeStream::name, "Name of the stream.").required().length(1, 63);
  t.field("address", &EdgeStream::address,
          "HOST:PORT of the target. The gateway connects to it, or the agent if the node uses no "
          "gateway. Absent: not known yet.")
      .length(0, 270);
  t.field("listen", &EdgeStream::listen,
          "The agent opens a port on the node that leads to the target.");
  t.field("identity", &EdgeStream::identity,
          "The target gets the identity of node, worker and job in a PROXY protocol header, before "
          "the first byte.");
  t.keep_unknown(&EdgeStream::unknown);
}

void EdgeBucket::describe(Type<EdgeBucket>& t) {
  t.doc("A bucket of an S3-compatible server.");
  t.field("url", &EdgeBucket::url, "s3://BUCKET or s3://BUCKET/PREFIX.").required().length(1, 2048);
  t.field("credentials", &EdgeBucket::credentials,
          "NAMESPACE/NAME of the Secret with the access key. Absent: requests are not signed.")
      .length(0, 317);
  t.keep_unknown(&EdgeBucket::unknown);
}

std::string EdgeBucket::key_of(std::string_view sha256, std::string_view name) {
  return std::string(sha256) + "/" + std::string(name);
}

std::string EdgeBucket::url_of(std::string_view url, std::string_view sha256,
                               std::string_view name) {
  while (url.ends_with('/')) url.remove_suffix(1);
  return std::string(url) + "/" + key_of(sha256, name);
}

void EdgeWorker::describe(Type<EdgeWorker>& t) {
  t.doc("A worker of a job. The agent expects the worker to register.");
  t.field("key", &EdgeWorker::key, "NAMESPACE/NAME of the worker.").required().length(1, 317);
  t.field("uid", &EdgeWorker::uid, "metadata.uid of the worker's job.").length(0, 64);
  t.field("owner", &EdgeWorker::owner, "KIND/NAME of the worker's job.").length(0, 317);
  t.field("assignment", &EdgeWorker::assignment, "Assignment of the worker.");
  t.field("uploads", &EdgeWorker::uploads,
          "Files that the worker may upload to the registry. Absent: none.");
  t.field("bucket", &EdgeWorker::bucket,
          "The bucket that gets the worker's files instead of the registry.");
  t.field("streams", &EdgeWorker::streams, "Targets that the worker may reach through its agent.")
      .items_max(EdgeStream::kMax)
      .list_map({"name"});
  t.keep_unknown(&EdgeWorker::unknown);
}

void EdgeShare::describe(Type<EdgeShare>& t) {
  t.doc("Files of this node that other nodes copy.");
  t.field("key", &EdgeShare::key,
          "RESOURCE.GROUP/NAMESPACE/NAME of the object to which the files belong.")
      .required()
      .length(1, 400);
  t.field("path", &EdgeShare::path,
          "Path of the files. Absent: the copy that this node has under the key.")
      .length(0, 4096);
  t.field("nodes", &EdgeShare::nodes, "Nodes that may copy the files.")
      .items_max(512)
      .each_length(1, 253);
  t.field("relay", &EdgeShare::relay,
          "The node uploads the snapshot to the registry, for nodes that do not reach this node.");
  t.keep_unknown(&EdgeShare::unknown);
}

void EdgeReplicaSource::describe(Type<EdgeReplicaSource>& t) {
  t.doc("A node that has the files.");
  t.field("node", &EdgeReplicaSource::node, "Name of the node, as in its certificate.")
      .required()
      .length(1, 253);
  t.field("url", &EdgeReplicaSource::url, "status.peerUrl of that node.")
      .required()
      .length(1, 2048);
  t.keep_unknown(&EdgeReplicaSource::unknown);
}

void EdgeReplica::describe(Type<EdgeReplica>& t) {
  t.doc("Files to copy from other nodes.");
  t.field("key", &EdgeReplica::key,
          "RESOURCE.GROUP/NAMESPACE/NAME of the object to which the files belong.")
      .required()
      .length(1, 400);
  t.field("uid", &EdgeReplica::uid, "metadata.uid of that object.").length(0, 64);
  t.field("snapshot", &EdgeReplica::snapshot,
          "Name of the snapshot to copy. Absent: the node with the files has not reported a "
          "snapshot yet.")
      .length(0, 64);
  t.field("sources", &EdgeReplica::sources, "Nodes to ask, in this order.")
      .items_max(8)
      .list_map({"node"});
  t.field("relay", &EdgeReplica::relay,
          "The registry has the snapshot. The node asks the registry after the sources.");
  t.field("metadata", &EdgeReplica::metadata,
          "Name, format, labels and counts of the object. The agent writes them to metadata.json "
          "beside the copy.");
  t.keep_unknown(&EdgeReplica::unknown);
}

void EdgeFile::describe(Type<EdgeFile>& t) {
  t.doc("A file whose digest the node reports.");
  t.field("key", &EdgeFile::key, "RESOURCE.GROUP/NAMESPACE/NAME of the object that names the file.")
      .required()
      .length(1, 400);
  t.field("uid", &EdgeFile::uid, "metadata.uid of that object.").length(0, 64);
  t.field("path", &EdgeFile::path, "Path of the file.").required().length(1, 4096);
  t.field("version", &EdgeFile::version,
          "spec.version of that object. With another version the node reads the file again.")
      .length(0, 63);
  t.keep_unknown(&EdgeFile::unknown);
}

void EdgeNodeSpec::describe(Type<EdgeNodeSpec>& t) {
  t.doc("Work list of the node. Only the operator writes it.");
  t.field("models", &EdgeNodeSpec::models, "Models to store and serve.")
      .items_max(256)
      .list_map({"key"});
  t.field("datasets", &EdgeNodeSpec::datasets, "Datasets to watch and count.")
      .items_max(128)
      .list_map({"key"});
  t.field("workers", &EdgeNodeSpec::workers, "Expected workers.").items_max(64).list_map({"key"});
  t.field("shares", &EdgeNodeSpec::shares, "Files that other nodes copy.")
      .items_max(128)
      .list_map({"key"});
  t.field("replicas", &EdgeNodeSpec::replicas, "Files to copy from other nodes.")
      .items_max(128)
      .list_map({"key"});
  t.field("files", &EdgeNodeSpec::files, "Files whose digest the node reports.")
      .items_max(EdgeFile::kMax)
      .list_map({"key"});
  t.keep_unknown(&EdgeNodeSpec::unknown);
}

void EdgeVersionReport::describe(Type<EdgeVersionReport>& t) {
  t.doc("A version on the node.");
  t.field("version", &EdgeVersionReport::version, "Name of the version.").required().length(1, 63);
  t.field("state", &EdgeVersionReport::state, "State of the version.")
      .required()
      .one_of({"Pending", "Downloading", "Ready", "Failed"});
  t.field("reason", &EdgeVersionReport::reason,
          "Reason of the last failure: DownloadFailed, DigestMismatch, UnsafeArchive, BadLayout, "
          "DiskFull, SourceForbidden, "
          "CredentialsMissing, CredentialsInvalid or CredentialsForbidden.")
      .length(0, 128);
  t.field("message", &EdgeVersionReport::message, "Human-readable explanation of the last failure.")
      .length(0, 4096);
  t.field("sha256", &EdgeVersionReport::sha256, "SHA-256 of the reported archive.").length(0, 64);
  t.field("bytes", &EdgeVersionReport::bytes, "Size on disk.").format("int64");
  t.field("bytesDone", &EdgeVersionReport::bytes_done,
          "Downloaded bytes of the archive, if the download takes longer than 10 s. Updated at "
          "most every 10 s.")
      .format("int64");
  t.field("bytesTotal", &EdgeVersionReport::bytes_total,
          "Size of the archive, if the download takes longer than 10 s. Absent if the source does "
          "not report it.")
      .format("int64");
  t.field("shared", &EdgeVersionReport::shared,
          "Whether the node keeps the archive and shares it with other nodes.");
  t.field(
       "format", &EdgeVersionReport::format,
       "Format of the installed files, if the framework has several. tensorflow: saved-model, or "
       "pb for a frozen graph.")
      .one_of({"saved-model", "pb"});
  t.keep_unknown(&EdgeVersionReport::unknown);
}

void EdgeServingReport::describe(Type<EdgeServingReport>& t) {
  t.doc("State of the model's server.");
  t.field("version", &EdgeServingReport::version, "The version that answers.").length(0, 63);
  t.field("state", &EdgeServingReport::state, "State of the server.")
      .required()
      .one_of({"Ready", "Loading", "Failed", "Unreachable"});
  t.field("failedVersion", &EdgeServingReport::failed_version, "The version that did not load.")
      .length(0, 63);
  t.field("reason", &EdgeServingReport::reason, "Reason as one word.").length(0, 128);
  t.field("message", &EdgeServingReport::message, "Human-readable explanation.").length(0, 4096);
  t.keep_unknown(&EdgeServingReport::unknown);
}

void EdgeModelReport::describe(Type<EdgeModelReport>& t) {
  t.doc("A model on the node.");
  t.field("key", &EdgeModelReport::key,
          "NAMESPACE/NAME of the InferenceModel, or NAMESPACE/NAME.WORKER of a job's worker.")
      .required()
      .length(1, 317);
  t.field("exposed", &EdgeModelReport::exposed,
          "The version that is exposed to the server. Empty: none.")
      .length(0, 63);
  t.field("versions", &EdgeModelReport::versions, "Versions on the node.")
      .items_max(64)
      .list_map({"version"});
  t.field("serving", &EdgeModelReport::serving, "State of the model's server.");
  t.field("joint", &EdgeModelReport::joint,
          "The server's report on the tiers of joint inference. The agent reports changes of state "
          "at once, and counts at most "
          "every 10 s. Counters are summed over starts of the server, and grow within an epoch.");
  t.keep_unknown(&EdgeModelReport::unknown);
}

void EdgeClassCount::describe(Type<EdgeClassCount>& t) {
  t.doc("Number of samples or annotations of one class.");
  t.field("name", &EdgeClassCount::name, "Name of the class.").required().length(1, 256);
  t.field("count", &EdgeClassCount::count, "Number of samples or annotations.")
      .required()
      .format("int64");
  t.keep_unknown(&EdgeClassCount::unknown);
}

void EdgeMalformed::describe(Type<EdgeMalformed>& t) {
  t.doc("A malformed record.");
  t.field("file", &EdgeMalformed::file,
          "File below the dataset's path. Absent if the path is the file itself.")
      .length(0, 4096);
  t.field("line", &EdgeMalformed::line,
          "Line of the record, from 1. Absent if the format has no lines.")
      .format("int64");
  t.field("byte", &EdgeMalformed::byte, "Offset of the record in bytes.").format("int64").always();
  t.field("why", &EdgeMalformed::why, "The mistake in the record.").length(0, 1024);
  t.keep_unknown(&EdgeMalformed::unknown);
}

void EdgeDatasetReport::describe(Type<EdgeDatasetReport>& t) {
  using R = EdgeDatasetReport;
  t.doc("A dataset on the node. The numbers are from the last successful count.");
  t.field("key", &R::key, "RESOURCE.GROUP/NAMESPACE/NAME of the Dataset.")
      .required()
      .length(1, 400);
  t.field("uid", &R::uid, "metadata.uid of the Dataset that was counted.").length(0, 64);
  t.field("state", &R::state, "State of the count.")
      .required()
      .one_of({"Pending", "Counting", "Counted", "Failed"});
  t.field("reason", &R::reason,
          "Reason of the failure: PathForbidden, PathNotFound, FormatInvalid or ReadFailed.")
      .length(0, 128);
  t.field("message", &R::message, "Human-readable explanation of the failure.").length(0, 4096);
  t.field("samples", &R::samples, "Number of samples. Absent before the first count.")
      .format("int64");
  t.field("bytes", &R::bytes, "Number of counted bytes.").format("int64");
  t.field("inexact", &R::inexact,
          "Reason why samples may be incomplete. Absent: the count is exact.")
      .length(0, 1024);
  t.field("malformed", &R::malformed, "Number of malformed records.").format("int64");
  t.field("firstMalformed", &R::first_malformed, "The first malformed record.");
  t.field("classes", &R::classes,
          "Samples or annotations of each class, if the format has classes. Only the first 64 "
          "classes by name.")
      .items_max(EdgeDatasetReport::kClassesMax)
      .list_map({"name"});
  t.field("furtherClasses", &R::further_classes,
          "Samples or annotations of all other classes together.")
      .format("int64");
  t.field("header", &R::header, "Whether the first record names the columns: yes or no.")
      .length(0, 8);
  t.field("fingerprint", &R::fingerprint, "Identifier of this state of the data.").length(0, 128);
  t.field("time", &R::time, "Time when the node last found a change, by the node's clock.")
      .length(0, 64);
  t.keep_unknown(&R::unknown);
}

void EdgeStreamReport::describe(Type<EdgeStreamReport>& t) {
  t.doc("A port of the node that leads to the target of a stream.");
  t.field("name", &EdgeStreamReport::name, "Name of the stream.").required().length(1, 63);
  t.field("address", &EdgeStreamReport::address, "HOST:PORT on the node. Absent: there is no port.")
      .length(0, 270);
  t.field("message", &EdgeStreamReport::message, "Reason why there is no port.").length(0, 1024);
  t.keep_unknown(&EdgeStreamReport::unknown);
}

void EdgeWorkerReport::describe(Type<EdgeWorkerReport>& t) {
  t.doc("The last report of a worker on the node.");
  t.field("key", &EdgeWorkerReport::key, "NAMESPACE/NAME of the worker.").required().length(1, 317);
  t.field("uid", &EdgeWorkerReport::uid, "metadata.uid of the worker's job.").length(0, 64);
  t.field("report", &EdgeWorkerReport::report, "Progress, metrics and results of the worker.");
  t.field("streams", &EdgeWorkerReport::streams, "Ports of the node for the worker's streams.")
      .items_max(EdgeStream::kMax)
      .list_map({"name"});
  t.keep_unknown(&EdgeWorkerReport::unknown);
}

void EdgeShareReport::describe(Type<EdgeShareReport>& t) {
  using R = EdgeShareReport;
  t.doc("Files of this node that other nodes copy.");
  t.field("key", &R::key, "RESOURCE.GROUP/NAMESPACE/NAME of the object to which the files belong.")
      .required()
      .length(1, 400);
  t.field("path", &R::path,
          "Path of the reported files. Absent: the copy that this node has under the key.")
      .length(0, 4096);
  t.field("state", &R::state, "Whether other nodes can copy the files.")
      .required()
      .one_of({"Pending", "Ready", "Failed"});
  t.field("reason", &R::reason,
          "Reason of a failure: PathForbidden, PathNotFound, TooLarge or ReadFailed.")
      .length(0, 128);
  t.field("message", &R::message, "Human-readable explanation.").length(0, 4096);
  t.field("snapshot", &R::snapshot, "Name of the shared snapshot.").length(0, 64);
  t.field("bytes", &R::bytes, "Size of all files.").format("int64");
  t.field("files", &R::files, "Number of files.").format("int64");
  t.field("relayed", &R::relayed, "Name of the snapshot that the registry has.").length(0, 64);
  t.field("relayReason", &R::relay_reason,
          "Reason why the registry lacks the snapshot: Relaying, RelayMissing, RelayFull or "
          "RelayFailed.")
      .length(0, 128);
  t.field("relayMessage", &R::relay_message, "Human-readable explanation.").length(0, 4096);
  t.keep_unknown(&R::unknown);
}

void EdgeReplicaReport::describe(Type<EdgeReplicaReport>& t) {
  using R = EdgeReplicaReport;
  t.doc("A copy of another node's files.");
  t.field("key", &R::key, "RESOURCE.GROUP/NAMESPACE/NAME of the object to which the files belong.")
      .required()
      .length(1, 400);
  t.field("uid", &R::uid, "metadata.uid of that object.").length(0, 64);
  t.field("state", &R::state, "State of the copy.")
      .required()
      .one_of({"Pending", "Copying", "Current", "Failed"});
  t.field(
       "reason", &R::reason,
       "Reason why the copy is not current: SourceUnreachable, SourceChanged, DiskFull, Refused or "
       "NoIdentity.")
      .length(0, 128);
  t.field("message", &R::message, "Human-readable explanation.").length(0, 4096);
  t.field("snapshot", &R::snapshot, "Snapshot of the copy that readers see.").length(0, 64);
  t.field("path", &R::path, "Path of the copy that readers see.").length(0, 4096);
  t.field("bytes", &R::bytes, "Size of the copy that readers see.").format("int64");
  t.field("bytesDone", &R::bytes_done,
          "Received bytes, if copying takes longer than 10 s. Updated at most every 10 s.")
      .format("int64");
  t.field("bytesTotal", &R::bytes_total, "Bytes to receive in all, if copying takes long.")
      .format("int64");
  t.field("relay", &R::relay,
          "The node reached no source for some time, or got the last copy through the registry.");
  t.keep_unknown(&R::unknown);
}

void EdgeFileReport::describe(Type<EdgeFileReport>& t) {
  using R = EdgeFileReport;
  t.doc("A file that the node read for its digest.");
  t.field("key", &R::key, "RESOURCE.GROUP/NAMESPACE/NAME of the object that names the file.")
      .required()
      .length(1, 400);
  t.field("uid", &R::uid, "metadata.uid of that object.").length(0, 64);
  t.field("path", &R::path, "Path of the file.").length(0, 4096);
  t.field("version", &R::version, "spec.version of that object.").length(0, 63);
  t.field("state", &R::state, "State of the file.")
      .required()
      .one_of({"Reading", "Read", "Failed"});
  t.field("message", &R::message, "Human-readable explanation of a failure.").length(0, 4096);
  t.field("sha256", &R::sha256, "SHA-256 of the file.").length(0, 64);
  t.field("bytes", &R::bytes, "Size of the file.").format("int64");
  t.keep_unknown(&R::unknown);
}

void EdgeDisk::describe(Type<EdgeDisk>& t) {
  t.doc("The disk of the models. Sizes are rounded, so that they change rarely.");
  t.field("capacityBytes", &EdgeDisk::capacity_bytes, "Size of the file system.").format("int64");
  t.field("availableBytes", &EdgeDisk::available_bytes, "Free space for models.").format("int64");
  t.keep_unknown(&EdgeDisk::unknown);
}

void EdgeSummary::describe(Type<EdgeSummary>& t) {
  t.doc("Short texts for printer columns.");
  t.field("models", &EdgeSummary::models, "Ready models of all models in the work list: 1/2.")
      .length(0, 32);
  t.field("datasets", &EdgeSummary::datasets,
          "Counted datasets of all datasets in the work list: 3/3.")
      .length(0, 32);
  t.field("disk", &EdgeSummary::disk, "Free disk space for models.").length(0, 64);
}

namespace {

bool is_below(const std::vector<std::string>& roots, std::string_view path) {
  return std::any_of(roots.begin(), roots.end(), [&](std::string_view root) {
    while (root.ends_with('/')) root.remove_suffix(1);
    return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
  });
}

}  // namespace

bool EdgeNodeStatus::allows_path(std::string_view path) const { return is_below(file_roots, path); }

bool EdgeNodeStatus::allows_dataset(std::string_view path) const {
  return is_below(dataset_roots, path) || allows_path(path);
}

void EdgeNodeStatus::describe(Type<EdgeNodeStatus>& t) {
  using S = EdgeNodeStatus;
  t.doc("The node's report. The agent writes it on changes only, except conditions and lastSeen.");
  t.field("observedGeneration", &S::observed_generation,
          "metadata.generation of the work list that the agent applies.")
      .format("int64");
  t.field("agentVersion", &S::agent_version, "Version of the agent.").length(0, 63);
  t.field("modelRoot", &S::model_root,
          "Directory of the exposed models on the node; pods mount MODELROOT/NAMESPACE/NAME.")
      .length(0, 4096);
  t.field("workerRoot", &S::worker_root, "Directory of the workers' tokens on the node.")
      .length(0, 4096);
  t.field("workerSocketDirectory", &S::worker_socket_directory,
          "Directory of the agent's socket for workers on the node. Absent: there is no socket.")
      .length(0, 4096);
  t.field("workerUser", &S::worker_user,
          "User ID of the agent, which owns the workers' tokens and the socket.")
      .format("int64")
      .range(0, 4'294'967'295);
  t.field("address", &S::address, "IP address of the node.").length(0, 253);
  t.field("fileRoots", &S::file_roots,
          "Directories of the node that the administrator allows: pods may read Models with paths "
          "below them.")
      .items_max(16)
      .each_length(0, 4096);
  t.field("datasetRoots", &S::dataset_roots,
          "Directories of the node that the administrator allows for datasets.")
      .items_max(16)
      .each_length(0, 4096);
  t.field("disk", &S::disk, "The disk of the models.");
  t.field("conditions", &S::conditions, "Connected: the agent watches its work list.")
      .items_max(16)
      .list_map({"type"});
  t.field("models", &S::models, "Models on the node.").items_max(256).list_map({"key"});
  t.field("datasets", &S::datasets, "Datasets on the node.").items_max(128).list_map({"key"});
  t.field("workers", &S::workers, "Workers on the node.").items_max(64).list_map({"key"});
  t.field("peerUrl", &S::peer_url, "URL at which other nodes copy the files that this node shares.")
      .length(0, 2048);
  t.field("shares", &S::shares, "Files that other nodes copy.").items_max(128).list_map({"key"});
  t.field("replicas", &S::replicas, "Copies of other nodes' files.")
      .items_max(128)
      .list_map({"key"});
  t.field("files", &S::files, "Files that the node read for their digest.")
      .items_max(EdgeFile::kMax)
      .list_map({"key"});
  t.field(
       "lastSeen", &S::last_seen,
       "Time when the connection was lost. Absent: the agent is connected, or has never connected.")
      .format("date-time");
  t.field("summary", &S::summary, "Short texts for printer columns.");
  t.keep_unknown(&S::unknown);
}

void EdgeNode::describe(Type<EdgeNode>& t) {
  t.doc(
      "A node that runs an agent: the operator's work list in spec, the node's report in status.");
  t.field("metadata", &EdgeNode::metadata, "Standard object metadata; the name is the node's.");
  t.field("spec", &EdgeNode::spec, "Work list of the node.").atomic();
  t.field("status", &EdgeNode::status, "The node's report.").atomic();
  t.keep_unknown(&EdgeNode::unknown);
}

namespace {

std::vector<meta::StatusCause> check_edge_node_address(const Json& old, const Json& object) {
  std::vector<meta::StatusCause> causes;
  for (const meta::AddressProblem& one :
       meta::added_address_problems("EdgeNode", old["status"], object["status"])) {
    causes.push_back({"FieldValueInvalid",
                      "Invalid value: " + codec::quote(one.value) + ": " + one.message, one.field});
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
              {"Models", "string", ".status.summary.models",
               "Ready models of all models in the work list"},
              {"Datasets", "string", ".status.summary.datasets",
               "Counted datasets of all datasets in the work list"},
              {"Disk", "string", ".status.summary.disk", "Free disk space for models"},
              {"LastSeen", "date", ".status.lastSeen",
               "Time since the connection was lost; empty while connected"},
              {"Age", "date", ".metadata.creationTimestamp", ""},
          },
      .scale = {},
      .notes = {"The node's agent creates the object. Only the operator writes `spec`, and "
                "overwrites changes by\n  hand."},
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
