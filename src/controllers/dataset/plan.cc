#include "controllers/dataset/plan.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "hosting/node_work.h"
#include "net/url.h"

namespace varda::controllers::dataset {

namespace {

bool begins_with_one_of(const std::string& text, std::initializer_list<std::string_view> starts) {
  return std::any_of(starts.begin(), starts.end(),
                     [&](std::string_view start) { return text.starts_with(start); });
}

std::string known_formats() { return join(api::known_dataset_formats()); }

}  // namespace

std::optional<hosting::Problem> spec_problem(const DatasetView& dataset) {
  const api::DatasetSpec& spec = dataset.spec;
  const bool remote = begins_with_one_of(spec.url, {"http://", "https://", "s3://"});
  if (spec.url.starts_with("pvc://") || (remote && !spec.sha256.empty())) {
    return hosting::Problem{"NotCounted",
                            "no node counts this data: TrainingModels of the cloud layer without a "
                            "node read it"};
  }
  if (remote) {
    return hosting::Problem{
        "Unsupported",
        spec.url.substr(0, spec.url.find(':')) +
            " URLs are not supported: nodes count files on their own disks. Copy the "
            "data to a node and set url to the path there. Set sha256 for TrainingModels of the "
            "cloud layer without a node"};
  }
  if (!replication::local_path(spec.url)) {
    return hosting::Problem{
        "InvalidSpec",
        "the URL must be an absolute path or a file:/// URL, at most 4096 bytes long"};
  }
  const auto& known = api::known_dataset_formats();
  if (std::find(known.begin(), known.end(), lower(spec.format)) == known.end()) {
    return hosting::Problem{
        "FormatUnknown",
        "format " + spec.format + " is not supported; supported formats: " + known_formats()};
  }
  if (spec.node_name.empty())
    return hosting::Problem{"NodeMissing", "nodeName must be set: name the node that has the data"};
  return {};
}

std::optional<api::EdgeDataset> work_for(const DatasetView& dataset) {
  if (dataset.metadata.deleting() || spec_problem(dataset)) return {};
  api::EdgeDataset work;
  work.key = hosting::work_key(dataset.resource, dataset.metadata.key());
  work.uid = dataset.metadata.uid;
  work.path = *replication::local_path(dataset.spec.url);
  work.format = lower(dataset.spec.format);
  work.header = dataset.spec.header;
  work.recount_seconds = std::max<std::int64_t>(dataset.spec.recount_seconds(), 0);
  return work;
}

std::optional<replication::ReplicationClaim> claim_of(const DatasetView& dataset) {
  if (!dataset.spec.replication) return std::nullopt;
  const auto work = work_for(dataset);
  if (!work) return std::nullopt;
  codec::Json spec = codec::Json::object({{"format", work->format}});
  if (!work->header.empty()) spec.set("header", work->header);
  return replication::ReplicationClaim{
      .key = work->key,
      .uid = work->uid,
      .node = dataset.spec.node_name,
      .path = work->path,
      .spec = *dataset.spec.replication,
      .metadata = replication::metadata_of(dataset.resource, dataset.metadata, std::move(spec))};
}

std::optional<api::ReplicationStatus> observe_copies(const DatasetView& dataset,
                                                     const replication::ReplicationWorld& world,
                                                     std::string_view now) {
  if (!dataset.spec.replication) return std::nullopt;
  if (const auto claim = claim_of(dataset))
    return replication::observe_replication(
        *claim, world, dataset.status.replication.value_or(api::ReplicationStatus()), now);
  api::ReplicationStatus out;
  if (auto problem = spec_problem(dataset)) {
    out.reason = std::move(problem->reason);
    out.message = std::move(problem->message);
  }
  return out;
}

}  // namespace varda::controllers::dataset
