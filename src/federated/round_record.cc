#include "federated/round_record.h"

#include <cmath>

namespace varda::federated {

using codec::Json;

Json to_json(const Metrics& metrics) {
  Json out = Json::object();
  for (const auto& [name, value] : metrics) out.set(name, value);
  return out;
}

Metrics metrics_of(const Json& json) {
  Metrics out;
  for (const auto& [name, value] : json.as_object())
    if (value.is_number()) out.emplace(name, value.as_double());
  return out;
}

Json to_json(const AcceptedUpdate& update) {
  return Json::object({{"client", update.client},
                       {"digest", update.digest},
                       {"trainedOn", update.trained_on},
                       {"repeat", update.repeat},
                       {"samples", update.samples},
                       {"norm", update.norm},
                       {"controlNorm", update.control_norm},
                       {"metrics", to_json(update.metrics)}});
}

AcceptedUpdate accepted_update_of(const Json& json) {
  return {.client = json["client"].as_string(),
          .digest = json["digest"].as_string(),
          .trained_on = json["trainedOn"].as_integer(),
          .repeat = json["repeat"].as_integer(),
          .samples = json["samples"].as_double(),
          .norm = json["norm"].as_double(),
          .control_norm = json["controlNorm"].as_double(),
          .metrics = metrics_of(json["metrics"])};
}

Json to_json(const RoundRecord& record) {
  return Json::object({{"round", record.round},
                       {"attempts", record.attempts},
                       {"repeats", record.repeats},
                       {"clients", record.clients},
                       {"updates", record.updates},
                       {"refused", record.refused},
                       {"samples", record.samples},
                       {"seconds", record.seconds},
                       {"model", record.model},
                       {"training", to_json(record.training)},
                       {"evaluation", to_json(record.evaluation)},
                       {"evaluatedBy", record.evaluated_by}});
}

RoundRecord record_of(const Json& json) {
  return {.round = json["round"].as_integer(),
          .attempts = json["attempts"].as_integer(),
          .repeats = json["repeats"].as_integer(),
          .clients = json["clients"].as_integer(),
          .updates = json["updates"].as_integer(),
          .refused = json["refused"].as_integer(),
          .samples = json["samples"].as_double(),
          .seconds = json["seconds"].as_double(),
          .model = json["model"].as_string(),
          .training = metrics_of(json["training"]),
          .evaluation = metrics_of(json["evaluation"]),
          .evaluated_by = json["evaluatedBy"].as_integer()};
}

void MeanMetrics::add(const Metrics& metrics, double samples) {
  for (const auto& [name, value] : metrics) {
    if (!std::isfinite(value)) continue;
    auto& [sum, weight] = sums_[name];
    sum += value * samples;
    weight += samples;
  }
}

Metrics MeanMetrics::result() const {
  Metrics out;
  for (const auto& [name, sum] : sums_)
    if (sum.second > 0) out.emplace(name, sum.first / sum.second);
  return out;
}

}  // namespace varda::federated
