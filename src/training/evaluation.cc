#include "training/evaluation.h"

#include <algorithm>
#include <utility>

namespace varda::training {
namespace {

using codec::Json;

Json metrics_json(const std::map<std::string, double>& values) {
  Json out = Json::object();
  for (const auto& [name, value] : values) out.set(name, value);
  return out;
}

Error corrupt(std::string_view member) {
  return Error(Code::kCorrupt, "the member " + std::string(member) + " is wrong");
}

Result<std::map<std::string, double>> metrics_of(const Json& json) {
  std::map<std::string, double> out;
  for (const auto& [name, value] : json["metrics"].as_object()) {
    if (!value.is_number()) return corrupt("metrics");
    out[name] = value.as_double();
  }
  return out;
}

}  // namespace

bool is_wanted(const std::vector<Worst>& worst, double loss) {
  return worst.size() < kWorstMax || loss > worst.back().loss;
}

void offer(std::vector<Worst>& worst, Worst one) {
  if (!is_wanted(worst, one.loss)) return;
  if (worst.size() == kWorstMax) worst.pop_back();
  // Among equal losses the first sample stays first.
  const auto at =
      std::upper_bound(worst.begin(), worst.end(), one.loss,
                       [](double loss, const Worst& other) { return loss > other.loss; });
  worst.insert(at, std::move(one));
}

Json to_json(const EpochRecord& record) {
  Json out = Json::object({{"epoch", record.epoch}, {"loss", record.loss}});
  if (record.evaluation_loss) out.set("evaluationLoss", *record.evaluation_loss);
  out.set("metrics", metrics_json(record.metrics));
  out.set("learningRate", record.learning_rate);
  out.set("seconds", record.seconds);
  return out;
}

Json to_json(const Evaluation& evaluation) {
  Json out = Json::object({{"metrics", metrics_json(evaluation.metrics)}});
  Json rows = Json::array();
  for (const auto& row : evaluation.confusion) {
    Json items = Json::array();
    for (const std::uint64_t count : row) items.push_back(count);
    rows.push_back(std::move(items));
  }
  out.set("confusion", std::move(rows));
  Json worst = Json::array();
  for (const Worst& one : evaluation.worst)
    worst.push_back(Json::object({{"index", std::uint64_t{one.index}},
                                  {"place", one.place},
                                  {"expected", one.expected},
                                  {"predicted", one.predicted},
                                  {"loss", one.loss}}));
  out.set("worst", std::move(worst));
  return out;
}

Result<EpochRecord> parse_epoch_record(const Json& json) {
  EpochRecord out;
  for (const char* name : {"epoch", "loss", "learningRate", "seconds"})
    if (!json[name].is_number()) return corrupt(name);
  out.epoch = json["epoch"].as_integer();
  out.loss = json["loss"].as_double();
  out.learning_rate = json["learningRate"].as_double();
  out.seconds = json["seconds"].as_double();
  if (const Json* loss = json.find("evaluationLoss")) out.evaluation_loss = loss->as_double();
  TRY(out.metrics, metrics_of(json));
  return out;
}

Result<Evaluation> parse_evaluation(const Json& json) {
  Evaluation out;
  TRY(out.metrics, metrics_of(json));
  for (const Json& row : json["confusion"].as_array()) {
    auto& counts = out.confusion.emplace_back();
    for (const Json& count : row.as_array()) {
      if (count.as_integer(-1) < 0) return corrupt("confusion");
      counts.push_back(static_cast<std::uint64_t>(count.as_integer()));
    }
  }
  for (const auto& row : out.confusion)
    if (row.size() != out.confusion.size()) return corrupt("confusion");
  if (json["worst"].size() > kWorstMax) return corrupt("worst");
  for (const Json& one : json["worst"].as_array()) {
    if (one["index"].as_integer(-1) < 0) return corrupt("worst");
    out.worst.push_back({.index = static_cast<std::size_t>(one["index"].as_integer()),
                         .place = one["place"].as_string(),
                         .expected = one["expected"].as_string(),
                         .predicted = one["predicted"].as_string(),
                         .loss = one["loss"].as_double()});
  }
  return out;
}

}  // namespace varda::training
