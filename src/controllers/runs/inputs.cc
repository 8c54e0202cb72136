#include "controllers/runs/inputs.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "codec/digest.h"
#include "controllers/dataset/dataset.h"
#include "controllers/replication/replication.h"
#include "hosting/chosen_model.h"

namespace varda::controllers::runs {

namespace {

using codec::Json;
using hosting::Problem;

// Formats that a trainer reads, but a node cannot count.
constexpr std::string_view kUncounted[] = {"npy", "npz"};
// Labels or images lie beside a file of these formats.
constexpr std::string_view kWithNeighbours[] = {"coco", "idx", "npy", "txt"};

template <typename T>
std::string digest_of(const T& part) {
  return codec::Sha256::of(codec::write_json(codec::sorted(part.to_json()))).hex().substr(0, 16);
}

std::string digest_of_text(std::string_view text) {
  return codec::Sha256::of(text).hex().substr(0, 16);
}

BaseChoice no_base(std::string reason, std::string message) {
  return {{}, Problem{std::move(reason), std::move(message)}};
}
DatasetChoice no_dataset(std::string reason, std::string message) {
  return {{}, Problem{std::move(reason), std::move(message)}};
}

// The manifest as an InferenceModel, so that one function resolves both.
api::InferenceModel with_archives(const BaseRequest& request) {
  api::InferenceModel out;
  out.metadata.name = request.model_name;
  out.metadata.ns = request.run.ns;
  out.spec.model_name = request.model_name;
  out.spec.framework_type = request.trainer == Trainer::kOurs ? "onnx" : "";
  out.spec.manifest = request.wanted.manifest;
  out.spec.target_version = request.wanted.target_version;
  return out;
}

// The InferenceModel with the wanted version as its target.
std::shared_ptr<const api::InferenceModel> aimed_at(
    const std::shared_ptr<const api::InferenceModel>& model, const std::string& version) {
  if (model == nullptr || version.empty() || model->spec.find_version(version) == nullptr)
    return model;
  auto out = std::make_shared<api::InferenceModel>(*model);
  out->spec.target_version = version;
  return out;
}

// The node has counted the present spec, so its administrator allows the path (--dataset-root).
bool is_counted(const dataset::DatasetView& dataset) {
  return dataset.status.number_of_samples &&
         dataset.status.observed_generation == dataset.metadata.generation;
}

bool is_countable(const std::string& format) {
  return std::find(std::begin(kUncounted), std::end(kUncounted), format) == std::end(kUncounted);
}

api::ModelCredentials credentials_of(const std::string& secret_name) {
  api::ModelCredentials out;
  out.secret_name = secret_name;
  return out;
}

/// The Dataset that the reference means. Nothing: `problem` is set.
std::optional<dataset::DatasetView> find_dataset(const api::TrainingDataset& reference,
                                                 const NamedDatasets& named, Problem& problem) {
  const auto wanted = [&](const auto& dataset, const char* group) {
    return dataset != nullptr && !dataset->metadata.deleting() &&
           (reference.group.empty() || reference.group == group);
  };
  const bool edgeai = wanted(named.edgeai, "edgeai.io"), sedna = wanted(named.sedna, "sedna.io");
  const std::string subject = "Dataset " + reference.name;
  if (edgeai != sedna) {
    if (edgeai) return dataset::view(*named.edgeai);
    return dataset::view(*named.sedna);
  }
  if (!edgeai) {
    problem = {"DatasetNotFound", "there is no " + subject};
  } else {
    problem = {"DatasetAmbiguous",
               "edgeai.io and sedna.io have a " + subject + ": set the group of the dataset"};
  }
  return {};
}

/// True: no part of the path leaves the directory.
bool stays_below(const std::string& path) {
  return !path.starts_with("/") && ("/" + path + "/").find("/../") == std::string::npos &&
         path.find('\0') == std::string::npos;
}

std::string ready_problem(const api::DatasetStatus& status) {
  const meta::Condition* ready = meta::find_condition(status.conditions, "Ready");
  if (ready == nullptr) return "the Dataset has no condition yet";
  return ready->status == "True" ? "" : ready->reason + ": " + ready->message;
}

}  // namespace

std::optional<api::TrainingBase> pinned_base(const std::optional<api::TrainingBase>& pinned,
                                             const BaseRequest& request) {
  if (!pinned || pinned->requested != digest_of(request.wanted)) return {};
  return pinned;
}

BaseChoice choose_base(const BaseRequest& request, const workers::ModelWorld& world) {
  const api::TrainingInitialModel& wanted = request.wanted;
  const bool ours = request.trainer == Trainer::kOurs;
  const workers::ModelUse use =
      ours ? workers::ModelUse::kAnyServer : workers::ModelUse::kUsersWorker;
  const bool archives = wanted.name.empty();
  workers::ModelWorld seen = world;
  api::ModelReference reference{wanted.name, wanted.kind, wanted.group, {}};
  if (archives) {
    reference = {request.model_name, std::string(api::ModelReference::kInferenceModel), "", {}};
    seen.inference_model = std::make_shared<const api::InferenceModel>(with_archives(request));
  } else {
    seen.inference_model = aimed_at(world.inference_model, wanted.version);
  }
  workers::ModelResolution found = workers::resolve_model(reference, seen, use);
  if (found.problem) return {{}, std::move(found.problem)};
  const workers::ResolvedModel& model = *found.model;
  if (!wanted.version.empty() && model.version != wanted.version)
    return no_base("VersionMissing", model.kind + " " + model.name + " has version " +
                                         model.version + ", not version " + wanted.version);
  if (ours && model.framework != "onnx")
    return no_base("ModelUnsupported",
                   model.kind + " " + model.name + " has the format " + model.framework +
                       ": the trainer supports onnx; set an image, workerSpec or template for "
                       "other formats");
  api::TrainingBase base;
  base.requested = digest_of(wanted);
  if (!archives) {
    base.kind = model.kind;
    base.name = model.name;
  }
  if (const api::EdgeModelVersion* archive = model.archive(); archive != nullptr) {
    base.archive = hosting::entry_of(*archive);
  } else {
    base.archive.version = model.version;
    base.archive.download_url = model.url;
  }
  base.archive.signature.clear();
  return {std::move(base), {}};
}

workers::ResolvedModel resolved(const api::TrainingBase& base, const BaseRequest& request) {
  workers::ResolvedModel out;
  const api::ManifestEntry& entry = base.archive;
  out.name = base.name.empty() ? request.model_name : base.name;
  out.kind = base.kind;
  out.model_name = out.name;
  out.framework = request.trainer == Trainer::kOurs ? "onnx" : "";
  out.version = entry.version;
  out.url = entry.download_url;
  if (entry.sha256sum.empty()) {
    out.path = replication::local_path(entry.download_url).value_or("");
    return out;
  }
  api::EdgeModelVersion archive;
  archive.version = entry.version;
  archive.url = entry.download_url;
  archive.sha256 = entry.sha256sum;
  archive.mirrors = entry.mirrors;
  if (entry.credentials)
    archive.credentials = request.run.ns + "/" + entry.credentials->secret_name;
  out.archives.push_back(std::move(archive));
  return out;
}

DatasetChoice choose_dataset(const api::TrainingDataset& reference, const NamedDatasets& named,
                             const api::EdgeNode& agent, Started started) {
  const std::string subject = "Dataset " + reference.name;
  Problem problem;
  const auto found = find_dataset(reference, named, problem);
  if (!found) return {{}, std::move(problem)};
  const dataset::DatasetView& view = *found;
  const std::string& node = agent.metadata.name;
  if (view.spec.node_name != node)
    return no_dataset("DatasetElsewhere", subject + " is on node " + view.spec.node_name +
                                              ", but the run is on node " + node +
                                              ": both must be on one node");
  const auto path = replication::local_path(view.spec.url);
  const std::string format = lower(view.spec.format);
  const bool plain = path && *path != "/" && (*path + "/").find("/../") == std::string::npos;
  const bool allowed = plain && agent.status.allows_dataset(*path);
  if (!plain || (!allowed && !is_countable(format)))
    return no_dataset("PathForbidden",
                      subject + " has the URL " + view.spec.url.substr(0, 256) +
                          ", which is not below a directory that the agent of node " + node +
                          " allows (--dataset-root)");
  const bool counted = is_counted(view);
  if (is_countable(format) && (started == Started::kNo || (!allowed && !counted))) {
    std::string why = ready_problem(view.status);
    if (why.empty() && !counted) why = "the count is not of the present spec";
    if (!why.empty()) return no_dataset("DatasetNotReady", subject + " is not counted: " + why);
  }
  DatasetOnNode out{*path, format, view.status.fingerprint, *path};
  const bool has_neighbours = std::find(std::begin(kWithNeighbours), std::end(kWithNeighbours),
                                        format) != std::end(kWithNeighbours);
  const std::string parent = path->substr(0, path->find_last_of('/'));
  if (has_neighbours && agent.status.allows_dataset(parent)) out.mount = parent;
  return {std::move(out), {}};
}

ClusterDatasetChoice choose_cluster_dataset(const api::TrainingDataset& reference,
                                            const NamedDatasets& named) {
  constexpr std::string_view kVolume = "pvc://";
  constexpr std::size_t kVersionDigits = 12;
  const std::string subject = "Dataset " + reference.name;
  const auto no = [](std::string reason, std::string message) {
    return ClusterDatasetChoice{{}, Problem{std::move(reason), std::move(message)}};
  };
  Problem problem;
  const auto found = find_dataset(reference, named, problem);
  if (!found) return {{}, std::move(problem)};
  const api::DatasetSpec& spec = found->spec;
  const std::string& url = spec.url;
  DatasetInCluster out;
  out.format = lower(spec.format);
  out.path = spec.path;
  if (url.starts_with(kVolume)) {
    const std::string rest = url.substr(kVolume.size());
    const std::size_t slash = rest.find('/');
    out.claim = rest.substr(0, slash);
    if (slash != std::string::npos && slash + 1 < rest.size())
      out.path = rest.substr(slash + 1) + (spec.path.empty() ? "" : "/" + spec.path);
    if (!meta::check_dns_subdomain(out.claim).empty())
      return no("InvalidSpec", subject + " has the URL " + url.substr(0, 256) +
                                   ", which names no PersistentVolumeClaim: pvc://CLAIM/PATH");
  } else if (url.starts_with("http://") || url.starts_with("https://") ||
             url.starts_with("s3://")) {
    if (spec.sha256.empty())
      return no("DigestMissing", subject +
                                     " has no sha256: a run without a node verifies the data "
                                     "that it fetches");
    api::TrainingBase file;
    file.requested = digest_of_text(url + " " + spec.sha256);
    file.kind = "Dataset";
    file.name = reference.name;
    file.archive.version = spec.sha256.substr(0, kVersionDigits);
    file.archive.download_url = url;
    file.archive.sha256sum = spec.sha256;
    if (!spec.credential_name.empty())
      file.archive.credentials = credentials_of(spec.credential_name);
    out.file = std::move(file);
  } else {
    return no("DatasetElsewhere",
              subject +
                  " is on a node: set the nodeName of the run, or name an http, https, s3 or "
                  "pvc URL in the Dataset");
  }
  if (!stays_below(out.path))
    return no("InvalidSpec", subject + " has the path " + out.path.substr(0, 256) +
                                 ", which leaves the archive or the volume");
  return {std::move(out), {}};
}

workers::ResolvedModel resolved_file(const api::TrainingBase& pinned, const meta::ObjectMeta& run) {
  const api::TrainingInitialModel none;
  workers::ResolvedModel out = resolved(pinned, {none, run, pinned.name});
  out.name = out.model_name = "data";  // names of Datasets may be longer than those of models
  return out;
}

}  // namespace varda::controllers::runs
