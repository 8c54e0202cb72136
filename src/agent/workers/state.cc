#include "agent/workers/state.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "agent/workers/artifact_store.h"
#include "codec/digest.h"

namespace varda::agent::workers {
namespace {

using codec::Json;

constexpr std::size_t kFrameBytes =
    256;  // reserved in a report for braces, the sequence number and `cut`

std::string digest(const Json& models) {
  return models.empty() ? "" : codec::Sha256::of(codec::write_json(models)).hex();
}

/// Whether two items are equal except for the time.
bool same(const Json& stored, const Json& received) {
  Json without = stored;
  if (without.is_object()) without.erase("time");
  return without == received;
}

/// Members of a result's `data` that name files of /v1/artifacts.
constexpr const char* kFileMembers[] = {"artifact", "report", "csv"};

bool is_uploaded(const Json& entry) { return entry["state"].as_string() == Artifact::kUploaded; }

/// True: the disk with the only copy of the result's file is lost. A missing report only makes the
/// result poorer, and `report` may be any text of a user's worker.
bool has_lost_file(const Json& result, const Json& artifacts) {
  const std::string &artifact = result.at("data/artifact").as_string(),
                    &report = result.at("data/report").as_string();
  const Json* entry = artifacts.find(artifact);
  if (!artifact.empty() && (entry == nullptr || !is_uploaded(*entry))) return true;
  entry = artifacts.find(report);
  return !report.empty() && entry != nullptr && !is_uploaded(*entry);
}

/// Fills an object within a byte limit.
class Filler {
 public:
  explicit Filler(std::size_t bytes_max) : left_(bytes_max) {}
  bool put(Json& object, std::string_view name, const Json& value) {
    const std::size_t need =
        codec::write_json(Json(name)).size() + codec::write_json(value).size() + 2;
    if (need > left_) return false;
    left_ -= need;
    object.set(name, value);
    return true;
  }

 private:
  std::size_t left_;
};

}  // namespace

std::optional<State> State::from_json(const Json& json) {
  if (!json.is_object() || !json["uid"].is_string()) return std::nullopt;
  State out(json["uid"].as_string());
  out.registered_ = json["registered"];
  out.progress_ = json["progress"];
  out.metrics_ = out.written_metrics_ = json["metrics"];
  if (json["models"].is_object()) out.models_ = json["models"];
  for (const auto& [name, one] : json["results"].as_object())
    out.results_[name] = {one["order"].as_integer(), one["time"].as_string(), one["said"]};
  if (json["sequence"].is_integer()) out.sequence_ = json["sequence"].as_integer();
  out.published_ = json["told"].as_string();
  return out;
}

Json State::to_json() const {
  Json out = Json::object({{"uid", uid_}});
  if (!registered_.is_null()) out.set("registered", registered_);
  if (!progress_.is_null()) out.set("progress", progress_);
  if (!metrics_.is_null()) out.set("metrics", metrics_);
  if (!models_.empty()) out.set("models", models_);
  Json results = Json::object();
  for (const auto& [name, one] : results_)
    results.set(name, Json::object({{"order", one.order}, {"time", one.time}, {"said", one.body}}));
  if (!results.empty()) out.set("results", std::move(results));
  if (sequence_) out.set("sequence", *sequence_);
  if (!published_.empty()) out.set("told", published_);
  return out;
}

Status State::check_size() const {
  std::size_t bytes = codec::write_json(metrics_).size() + codec::write_json(models_).size();
  for (const auto& [name, one] : results_)
    bytes += name.size() + one.time.size() + codec::write_json(one.body).size() + 48;
  if (bytes <= kBytesMax - kProgressBytesMax) return {};
  return Error(Code::kExhausted, "metrics and results of a worker may have " +
                                     std::to_string(kBytesMax - kProgressBytesMax) +
                                     " bytes together; with this request the total would be " +
                                     std::to_string(bytes));
}

Result<bool> State::set_registered(Json message, const std::string& time) {
  if (same(registered_, message)) return false;
  // Metrics belong to a run; a new instance starts a new run.
  if (std::as_const(registered_)["instance"] != std::as_const(message)["instance"])
    metrics_ = written_metrics_ = Json();
  message.set("time", time);
  registered_ = std::move(message);
  return true;
}

Result<bool> State::set_progress(Json message, const std::string& time) {
  if (same(progress_, message)) return false;
  message.set("time", time);
  progress_ = std::move(message);
  return true;
}

Result<bool> State::set_metrics(Json message) {
  if (metrics_ == message) return false;
  std::swap(metrics_, message);
  if (Status fits = check_size(); !fits.ok()) {
    std::swap(metrics_, message);
    return std::move(fits).error();
  }
  return true;
}

bool State::set_written(const State& written) {
  if (std::as_const(registered_)["instance"] != written.registered_["instance"]) return false;
  if (written_metrics_ == written.metrics_) return false;
  written_metrics_ = written.metrics_;
  return true;
}

Result<bool> State::set_result(const std::string& name, Json body, const std::string& time) {
  const auto existing = results_.find(name);
  if (existing != results_.end() && existing->second.body == body) return false;
  State next = *this;
  for (const auto& [key, model] : std::as_const(body)["models"].as_object()) {
    Json& metrics = next.models_[key]["metrics"];
    for (const auto& [metric, value] : model["metrics"].as_object()) metrics.set(metric, value);
    if (metrics.is_null()) metrics = Json::object();
    if (metrics.size() > kModelMetricsMax)
      return Error(Code::kExhausted, "the results of a worker may give a Model " +
                                         std::to_string(kModelMetricsMax) +
                                         " metrics; with this request the total would be " +
                                         std::to_string(metrics.size()) + " for " + key);
  }
  if (next.models_.size() > kModelsMax)
    return Error(Code::kExhausted,
                 "the results of a worker may name " + std::to_string(kModelsMax) + " Models");
  std::int64_t order = 1;
  for (const auto& [other, one] : results_) order = std::max(order, one.order + 1);
  next.results_[name] = {order, time, std::move(body)};
  if (next.results_.size() > kResultsMax)
    return Error(Code::kExhausted, "a worker may have " + std::to_string(kResultsMax) +
                                       " results; one that is there can be replaced");
  TRY_VOID(next.check_size());
  *this = std::move(next);
  return true;
}

Json State::report(std::size_t bytes_max, const Json& artifacts) const {
  Filler room(bytes_max > kFrameBytes ? bytes_max - kFrameBytes : 0);
  Json out = Json::object();
  std::vector<std::string> cut;
  const auto left_out = [&](std::size_t missing, std::size_t all, const char* what) {
    if (missing > 0)
      cut.push_back(std::to_string(missing) + " of " + std::to_string(all) + " " + what);
  };
  Json models = Json::object();
  for (const auto& [key, model] : models_.as_object()) room.put(models, key, model);
  left_out(models_.size() - models.size(), models_.size(), "models");
  if (!models.empty()) out.set("models", std::move(models));
  if (!artifacts.empty() && !room.put(out, "artifacts", artifacts)) cut.emplace_back("artifacts");
  for (const auto& [name, item] : {std::pair("registered", &registered_),
                                   {"progress", &progress_},
                                   {"metrics", &written_metrics_}}) {
    if (!item->is_null() && !room.put(out, name, *item)) cut.emplace_back(name);
  }
  std::vector<decltype(results_)::const_iterator> newest;
  for (auto at = results_.begin(); at != results_.end(); ++at) newest.push_back(at);
  std::sort(newest.begin(), newest.end(),
            [](const auto& a, const auto& b) { return a->second.order > b->second.order; });
  std::map<std::string, Json> chosen;  // reported by name, which is a stable order
  Json counted = Json::object();
  for (const auto& at : newest) {
    Json one = Json::object({{"time", at->second.time}});
    if (const Json* data = at->second.body.find("data")) one.set("data", *data);
    if (room.put(counted, at->first, one)) chosen.emplace(at->first, std::move(one));
  }
  left_out(results_.size() - chosen.size(), results_.size(), "results");
  Json results = Json::object();
  for (auto& [name, one] : chosen) results.set(name, std::move(one));
  if (!results.empty()) out.set("results", std::move(results));
  if (!cut.empty()) {
    std::string text =
        "left out, because the reports of this node's workers exceed the size limit:";
    for (const std::string& one : cut) text += (&one == &cut.front() ? " " : ", ") + one;
    out.set("cut", std::move(text));
  }
  return out;
}

codec::Json State::adopt(const Json& report) {
  Json files = Json::object();
  const std::int64_t server_sequence = std::max<std::int64_t>(report["sequence"].as_integer(), 0);
  if (!sequence_) {  // the disk was empty
    const auto take = [&](const char* name, Json& item) {
      if (item.is_null() && report[name].is_object()) item = report[name];
    };
    take("registered", registered_);
    take("progress", progress_);
    take("metrics", metrics_);
    take("metrics", written_metrics_);
    for (const auto& [key, model] : report["models"].as_object()) {
      for (const auto& [metric, value] : model["metrics"].as_object()) {
        Json& metrics = models_[key]["metrics"];
        if (!std::as_const(metrics).contains(metric)) metrics.set(metric, value);
      }
    }
    std::int64_t order = -static_cast<std::int64_t>(report["results"].size());
    for (const auto& [name, one] : report["results"].as_object()) {
      ++order;  // older than any local result
      if (has_lost_file(one, report["artifacts"])) continue;
      Json body = Json::object();
      if (const Json* data = one.find("data")) body.set("data", *data);
      if (!results_.emplace(name, Result_{order, one["time"].as_string(), std::move(body)}).second)
        continue;
      for (const char* member : kFileMembers) {
        const std::string& file = one["data"][member].as_string();
        const Json* entry = report["artifacts"].find(file);
        if (entry != nullptr && is_uploaded(*entry)) files.set(file, *entry);
      }
    }
    if (report["models"].is_object()) published_ = digest(report["models"]);
  } else if (server_sequence > *sequence_) {
    published_
        .clear();  // the disk is outdated: the server's report with that number is unknown here
  }
  sequence_ = std::max(sequence_.value_or(after_), server_sequence);
  return files;
}

bool State::pass_on(const Json& report) {
  const std::string now = digest(report["models"]);
  if (now == published_ || !sequence_) return false;
  published_ = now;
  ++*sequence_;
  return true;
}

std::vector<std::size_t> share_out(const std::vector<std::size_t>& needs, std::size_t total) {
  std::vector<std::size_t> order(needs.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return needs[a] < needs[b]; });
  std::vector<std::size_t> out(needs.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    out[order[i]] = std::min(needs[order[i]], total / (order.size() - i));
    total -= out[order[i]];
  }
  return out;
}

}  // namespace varda::agent::workers
