#include <algorithm>
#include <map>

#include "codec/digest.h"
#include "controllers/model/plan.h"
#include "hosting/node_work.h"

namespace varda::controllers::model {

namespace {

using api::ModelMetricsStatus;
using codec::Json;

constexpr std::size_t kReportedMax = 1024;
constexpr std::size_t kKeyBytesMax = 253;

std::string_view namespace_of(std::string_view key) {
  return key.substr(0, std::min(key.find('/'), key.size()));
}

api::ModelReporter* find_reporter(ModelMetricsStatus& status, const std::string& node,
                                  const api::EdgeWorkerReport& report) {
  for (api::ModelReporter& one : status.reporters) {
    if (one.node == node && one.worker == report.key && one.uid == report.uid) return &one;
  }
  return nullptr;
}

bool is_expected(const std::vector<std::shared_ptr<const api::EdgeNode>>& nodes,
                 const api::ModelReporter& reporter) {
  return std::any_of(nodes.begin(), nodes.end(), [&](const auto& node) {
    const api::EdgeWorker* worker = node->spec.find_worker(reporter.worker);
    return node->metadata.name == reporter.node && worker != nullptr && worker->uid == reporter.uid;
  });
}

/// Merges worker reports into a status.
class Merge {
 public:
  Merge(const ModelView& model, ModelMetricsStatus& status,
        const std::vector<std::shared_ptr<const api::EdgeNode>>& nodes, std::string_view now)
      : key_(hosting::work_key(model.resource, model.metadata.key())),
        ns_(model.metadata.ns),
        status_(status),
        nodes_(nodes),
        now_(now) {}

  void report(const api::EdgeNode& node, const api::EdgeWorkerReport& report) {
    const Json* model = report.report["models"].find(key_);
    if (model == nullptr) return;
    const api::EdgeWorker* worker = node.spec.find_worker(report.key);
    if (worker == nullptr || worker->uid.empty() || worker->uid != report.uid)
      return;  // report of an earlier job
    const std::string source = "worker " + report.key + " on node " + node.metadata.name;
    if (namespace_of(report.key) != ns_)
      return doubt(source + " reports a Model of another namespace");
    const Json& sequence = report.report["sequence"];
    if (!sequence.is_integer() || sequence.as_integer() < 1)
      return doubt(source + " sent a report whose sequence is missing or less than 1");
    api::ModelReporter* reporter = find_reporter(status_, node.metadata.name, report);
    if (reporter != nullptr && sequence.as_integer() < reporter->sequence) return;
    const bool again = reporter != nullptr && sequence.as_integer() == reporter->sequence;
    if (reporter == nullptr) reporter = add_reporter(node.metadata.name, report);
    if (reporter == nullptr)
      return doubt(source + " is ignored: a Model accepts reports of at most 32 workers");
    reporter->sequence = sequence.as_integer();
    const Json::Object& metrics = (*model)["metrics"].as_object();
    for (const auto& [name, value] : metrics) {
      if (name.empty() || name.size() > kKeyBytesMax || !value.is_number()) {
        doubt(source +
              " sent an invalid metric: the name must have 1 to 253 bytes, and the value must be a "
              "number");
      } else if (!again) {
        put(source, name, codec::write_json(value));
      } else if (status_.find_metric(name) == nullptr &&
                 status_.metrics.size() >= ModelMetricsStatus::kMetricsMax) {
        doubt(too_many(source));
      }
    }
  }

  const std::string& doubt() const { return doubt_; }

 private:
  void doubt(const std::string& what) {
    if (doubt_.empty()) doubt_ = what;
  }
  static std::string too_many(const std::string& source) {
    return source + " sent too many metrics; a Model has at most " +
           std::to_string(ModelMetricsStatus::kMetricsMax);
  }

  void put(const std::string& source, const std::string& name, const std::string& value) {
    for (api::ModelMetric& metric : status_.metrics) {
      if (metric.key != name) continue;
      if (metric.value != value) status_.update_time = now_;
      metric.value = value;
      return;
    }
    if (status_.metrics.size() >= ModelMetricsStatus::kMetricsMax) return doubt(too_many(source));
    status_.metrics.push_back({name, value, {}});
    status_.update_time = now_;
  }

  // Only reporters that no work list expects are evicted. Any other worker's old report would count
  // as new after eviction.
  api::ModelReporter* add_reporter(const std::string& node, const api::EdgeWorkerReport& report) {
    auto& reporters = status_.reporters;
    if (reporters.size() >= ModelMetricsStatus::kReportersMax) {
      const auto idle = std::find_if(reporters.begin(), reporters.end(),
                                     [&](const auto& one) { return !is_expected(nodes_, one); });
      if (idle == reporters.end()) return nullptr;
      reporters.erase(idle);
    }
    reporters.push_back({node, report.key, report.uid, 0});
    return &reporters.back();
  }

  const std::string key_;
  const std::string& ns_;
  ModelMetricsStatus& status_;
  const std::vector<std::shared_ptr<const api::EdgeNode>>& nodes_;
  const std::string now_;
  std::string doubt_;
};

}  // namespace

std::vector<meta::ObjectKey> reported_models(const api::EdgeNode& node,
                                             const meta::Resource& resource) {
  std::vector<meta::ObjectKey> keys;
  const std::string start = resource.group_resource() + "/";
  for (const api::EdgeWorkerReport& worker : node.status.workers) {
    for (const auto& [name, model] : worker.report["models"].as_object()) {
      if (!name.starts_with(start)) continue;
      const std::size_t slash = name.find('/', start.size());
      if (slash == std::string::npos) continue;
      keys.push_back({name.substr(start.size(), slash - start.size()), name.substr(slash + 1)});
      if (keys.size() >= kReportedMax) return keys;
    }
  }
  return keys;
}

ModelMetricsStatus observe(const ModelView& model, const ModelMetricsStatus& before,
                           const std::vector<std::shared_ptr<const api::EdgeNode>>& nodes,
                           std::string_view now) {
  ModelMetricsStatus status = before;
  Merge merge(model, status, nodes, now);
  for (const auto& node : nodes) {
    for (const api::EdgeWorkerReport& report : node->status.workers) merge.report(*node, report);
  }
  const std::int64_t generation = std::max(model.metadata.generation, before.observed_generation);
  status.observed_generation = generation;
  const auto set = [&](std::string type, std::string value, std::string reason,
                       std::string message) {
    meta::set_condition(
        status.conditions,
        {std::move(type), std::move(value), std::move(reason), std::move(message), generation, ""},
        now);
  };
  if (status.metrics.empty()) {
    set("Ready", "True", "Registered",
        "the Model has no metrics yet; no job or worker has reported any");
  } else {
    set("Ready", "True", "Evaluated", "status.metrics has the reported metrics");
  }
  if (!merge.doubt().empty()) {
    set("ReportAccepted", "False", "ReportImplausible",
        "some reported values are ignored: " + merge.doubt());
  } else {
    std::erase_if(status.conditions, [](const meta::Condition& condition) {
      return condition.type == "ReportAccepted";
    });
  }
  return status;
}

bool is_readable(std::string_view url, hosting::ReadableFiles files) {
  if (url.starts_with("http://") || url.starts_with("https://") || url.starts_with("s3://"))
    return true;
  return files == hosting::ReadableFiles::kDownloadsAndPaths &&
         (url.starts_with("/") || url.starts_with("file://"));
}

bool needs_node(const hosting::AnyModel& model) {
  return replication::local_path(model.spec->url).has_value() &&
         model.spec->credential_name.empty() &&
         api::known_sha256(*model.spec, *model.status).empty();
}

api::EdgeFile file_of(const hosting::AnyModel& model) {
  const bool sedna = model.group == api::SednaModel::resource().group;
  api::EdgeFile out;
  out.key = hosting::work_key(sedna ? api::SednaModel::resource() : api::Model::resource(),
                              model.metadata->key());
  out.uid = model.metadata->uid;
  out.path = replication::local_path(model.spec->url).value_or("");
  out.version = model.spec->version;
  return out;
}

std::optional<hosting::FileDigest> answer_of(const api::EdgeNode& node,
                                             const hosting::AnyModel& model) {
  using State = hosting::FileDigest::State;
  const api::EdgeFile wanted = file_of(model);
  const auto& asked = node.spec.files;
  const bool known = std::any_of(asked.begin(), asked.end(), [&](const api::EdgeFile& file) {
    return file.key == wanted.key && file.uid == wanted.uid && file.path == wanted.path &&
           file.version == wanted.version;
  });
  if (!known) return std::nullopt;
  hosting::FileDigest out;
  for (const api::EdgeFileReport& report : node.status.files) {
    if (report.key != wanted.key || report.uid != wanted.uid || report.path != wanted.path ||
        report.version != wanted.version)
      continue;
    if (report.state == api::EdgeFileReport::kFailed) {
      out.state = State::kFailed;
      out.message = report.message;
    }
    if (report.state == api::EdgeFileReport::kRead && codec::Sha256::parse(report.sha256).ok() &&
        report.bytes > 0) {
      out.state = State::kRead;
      out.sha256 = report.sha256;
      out.bytes = report.bytes;
    }
  }
  return out;
}

void observe_pin(const api::ModelSpec& spec, const std::optional<hosting::FileDigest>& answer,
                 std::string_view now, ModelMetricsStatus& status, const std::string& reader) {
  using State = hosting::FileDigest::State;
  auto& pinned = status.pinned;
  if (pinned &&
      (!spec.sha256.empty() || pinned->url != spec.url || pinned->version != spec.version))
    pinned.reset();
  if (answer && answer->state == State::kRead)
    pinned =
        api::PinnedFile{spec.url, spec.version, answer->sha256, answer->bytes, std::string(now)};
  const auto set = [&](std::string value, std::string reason, std::string message) {
    meta::set_condition(status.conditions,
                        {"Pinned", std::move(value), std::move(reason), std::move(message),
                         status.observed_generation, ""},
                        now);
  };
  if (pinned) {
    set("True", "FirstUse",
        "nodes accept only bytes with the SHA-256 " + pinned->sha256 +
            "; set spec.version to another value to accept a changed file");
  } else if (answer && answer->state == State::kFailed) {
    set("False", "DownloadFailed",
        "the file has no sha256, and " + reader + " cannot read it: " + answer->message);
  } else if (answer) {
    set("False", "Reading", reader + " reads the file, because it has no sha256");
  } else {
    std::erase_if(status.conditions,
                  [](const meta::Condition& condition) { return condition.type == "Pinned"; });
  }
}

std::optional<replication::ReplicationClaim> claim_of(const ModelView& model,
                                                      const api::ModelSpec& spec) {
  if (!spec.replication || spec.node_name.empty() || model.metadata.deleting()) return std::nullopt;
  auto path = replication::local_path(spec.url);
  if (!path) return std::nullopt;
  Json facts = Json::object({{"format", spec.format}});
  if (!spec.task.empty()) facts.set("task", spec.task);
  Json labels = Json::array({});
  for (const std::string& label : spec.labels) labels.push_back(label);
  if (!labels.empty()) facts.set("labels", std::move(labels));
  return replication::ReplicationClaim{
      .key = hosting::work_key(model.resource, model.metadata.key()),
      .uid = model.metadata.uid,
      .node = spec.node_name,
      .path = std::move(*path),
      .spec = *spec.replication,
      .metadata = replication::metadata_of(model.resource, model.metadata, std::move(facts))};
}

std::optional<api::ReplicationStatus> observe_copies(const ModelView& model,
                                                     const api::ModelSpec& spec,
                                                     const replication::ReplicationWorld& world,
                                                     const api::ModelMetricsStatus& before,
                                                     std::string_view now) {
  if (!spec.replication) return std::nullopt;
  if (const auto claim = claim_of(model, spec))
    return replication::observe_replication(
        *claim, world, before.replication.value_or(api::ReplicationStatus()), now);
  api::ReplicationStatus out;
  out.reason = spec.node_name.empty() ? "NodeMissing" : "Unsupported";
  out.message = spec.node_name.empty() ? "nodeName must be set: replicas are copied from that node"
                                       : "url must be an absolute path on nodeName to be copied; "
                                         "an InferenceModel downloads archives from other URLs";
  return out;
}

}  // namespace varda::controllers::model
