#include "aggregator/task_document.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "codec/digest.h"
#include "federated/masked_update.h"
#include "privacy/mechanism.h"

namespace varda::aggregator {

using codec::Json;
using codec::Sha256;
using federated::Settings;
using federated::Task;

namespace {

Json file_json(const std::string& hex, Store& store) {
  const auto digest = Sha256::parse(hex);
  return Json::object(
      {{"sha256", hex}, {"bytes", digest.ok() ? store.size_of(*digest).value_or(0) : 0}});
}

Json update_json(const TaskFacts& facts) {
  const Settings& settings = facts.settings;
  Json out = Json::object({{"encoding", to_string(settings.compression.encoding)},
                           {"bytesMax", facts.update_bytes_max}});
  if (settings.compression.encoding == federated::Compression::kTopK)
    out.set("keep", settings.compression.keep);
  if (const auto& privacy = settings.privacy;
      privacy && privacy->mode == federated::PrivacyMode::kLocal)
    out.set("noise", Json::object({{"clip", privacy->clip},
                                   {"deviation", privacy::local_deviation(privacy->noise_multiplier,
                                                                          privacy->clip)}}));
  return out;
}

Json secure_json(const Task& task, const std::string& client, const TaskFacts& facts) {
  const Settings& settings = facts.settings;
  Json out = Json::object({{"sum", secure_sum_name(facts.job, task.id)},
                           {"client", client},
                           {"length", facts.values + federated::kMaskedTail},
                           {"limit", federated::secure_limit(settings)}});
  const bool is_private =
      settings.privacy && settings.privacy->mode == federated::PrivacyMode::kCentral;
  if (is_private)
    out.set("clip", settings.privacy->clip);
  else if (facts.needs.weighs_samples)
    out.set("weightMax", facts.secure_weight_max > 0 ? facts.secure_weight_max
                                                     : federated::secure_weight_max(settings));
  return out;
}

}  // namespace

std::string secure_sum_name(const std::string& job, const std::string& task) {
  return job + "/" + task;
}

Json task_document(const Task& task, const std::string& client, const TaskFacts& facts,
                   Store& store, SteadyTime now) {
  const Settings& settings = facts.settings;
  Json out = Json::object({{"id", task.id},
                           {"kind", task.kind == Task::Kind::kTrain ? "train" : "evaluate"},
                           {"round", task.round},
                           {"rounds", settings.rounds},
                           {"model", file_json(task.model, store)}});
  if (task.deadline)
    out.set("secondsLeft",
            std::max(0.0, std::chrono::duration<double>(*task.deadline - now).count()));
  if (!facts.file.empty()) {
    Json model = file_json(facts.file, store);
    if (!facts.extras.labels.empty()) {
      Json labels = Json::array();
      for (const std::string& label : facts.extras.labels) labels.push_back(label);
      model.set("labels", std::move(labels));
    }
    if (!facts.extras.yaml.empty()) model.set("yaml", facts.extras.yaml);
    out.set("file", std::move(model));
  }
  federated::TrainSettings train = settings.train;
  // Another order of samples in each round, and the same one after a restart.
  const std::string mixed = std::to_string(settings.seed) + "/" + std::to_string(task.round);
  train.seed = std::stoull(Sha256::of(mixed).hex().substr(0, 12), nullptr, 16);
  Json train_json = federated::to_json(train);
  if (task.kind == Task::Kind::kTrain) {
    if (facts.needs.loss) train_json.set("lossBefore", true);
    if (facts.needs.control)
      train_json.set("control",
                     facts.control.empty() ? Json(true) : file_json(facts.control, store));
    out.set("update", update_json(facts));
    if (settings.secure) out.set("secure", secure_json(task, client, facts));
  }
  out.set("train", std::move(train_json));
  return out;
}

}  // namespace varda::aggregator
