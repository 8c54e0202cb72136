#include "training/incremental_task.h"

#include <algorithm>

namespace varda::training {
namespace {

namespace incremental_task {

using codec::Json;

constexpr std::int64_t kRoundMax = std::int64_t{1} << 53;  // exact in every JSON parser

Error wrong(std::string_view member, const std::string& wanted) {
  return Error(Code::kInvalid, std::string(member) + " must be " + wanted);
}

Result<std::int64_t> number_of(const Json& json, std::string_view member, std::int64_t otherwise) {
  const Json* value = json.find(member);
  if (value == nullptr || value->is_null()) return otherwise;
  if (!value->is_integer() || value->as_integer() < 1 || value->as_integer() > kRoundMax)
    return wrong(member, "a whole number from 1");
  return value->as_integer();
}

Result<RoundSet> rounds_of(const Json& json, std::string_view member) {
  RoundSet out;
  const Json* list = json.find(member);
  if (list == nullptr || list->is_null()) return out;
  const auto is_round = [](const Json& value) {
    return value.is_integer() && value.as_integer() >= 1 && value.as_integer() <= kRoundMax;
  };
  const std::string wanted = "a list of rounds from 1, or of pairs [first, last]";
  if (!list->is_array() || list->size() > RoundSet::kRangesMax) return wrong(member, wanted);
  for (const Json& item : list->as_array()) {
    if (is_round(item)) {
      out.add(item.as_integer());
      continue;
    }
    const auto& pair = item.as_array();
    if (!item.is_array() || pair.size() != 2 || !is_round(pair[0]) || !is_round(pair[1]) ||
        pair[0].as_integer() > pair[1].as_integer())
      return wrong(member, wanted);
    out.add(pair[0].as_integer(), pair[1].as_integer());
  }
  return out;
}

std::string version_of(const Json& json, std::string_view member) {
  const Json* value = json.find(member);
  if (value == nullptr) return "";
  const Json& version = value->is_object() ? (*value)["version"] : *value;
  return version.is_integer() ? std::to_string(version.as_integer()) : version.string_or("");
}

}  // namespace incremental_task

}  // namespace

bool RoundSet::contains(std::int64_t round) const {
  return std::ranges::any_of(
      ranges_, [&](const auto& range) { return range.first <= round && round <= range.second; });
}

void RoundSet::add(std::int64_t first, std::int64_t last) {
  std::vector<std::pair<std::int64_t, std::int64_t>> out;
  for (const auto& range : ranges_) {
    if (range.second < first - 1 || range.first > last + 1) {
      out.push_back(range);
      continue;
    }
    first = std::min(first, range.first);
    last = std::max(last, range.second);
  }
  out.emplace_back(first, last);
  std::ranges::sort(out);
  ranges_ = std::move(out);
}

void RoundSet::remove(std::int64_t round) {
  std::vector<std::pair<std::int64_t, std::int64_t>> out;
  for (const auto& range : ranges_) {
    if (round < range.first || range.second < round) {
      out.push_back(range);
      continue;
    }
    if (range.first < round) out.emplace_back(range.first, round - 1);
    if (round < range.second) out.emplace_back(round + 1, range.second);
  }
  ranges_ = std::move(out);
}

std::string_view to_string(IncrementalTask::Stage stage) {
  return stage == IncrementalTask::Stage::kTrain ? "Train" : "Eval";
}

Result<IncrementalTask> parse_incremental_task(const codec::Json& json) {
  using namespace incremental_task;
  if (!json.is_object()) return Error(Code::kInvalid, "the assignment must be a JSON object");
  IncrementalTask out;
  if (!json.contains("round")) return Error(Code::kInvalid, "the assignment has no round");
  TRY(out.round, number_of(json, "round", 1));
  TRY(out.attempt, number_of(json, "attempt", 1));
  if (const Json* stage = json.find("stage"); stage != nullptr && !stage->is_null()) {
    const std::string name = stage->as_string();
    if (!stage->is_string() || (name != "Train" && name != "Eval"))
      return wrong("stage", "Train or Eval");
    if (name == "Eval") out.stage = IncrementalTask::Stage::kEval;
  }
  TRY(out.consumed, rounds_of(json, "consumed"));
  TRY(out.refused, rounds_of(json, "refused"));
  if (const Json* part = json.find("trainProb"); part != nullptr && !part->is_null()) {
    out.train_probability = part->as_double(-1);
    if (!part->is_number() || !(out.train_probability > 0 && out.train_probability <= 1))
      return wrong("trainProb", "above 0 and at most 1");
  }
  if (const Json* seed = json.find("seed"); seed != nullptr && !seed->is_null()) {
    if (!seed->is_integer() || seed->as_integer() < 0)
      return wrong("seed", "a whole number from 0");
    out.seed = static_cast<std::uint64_t>(seed->as_integer());
  }
  out.base_version = version_of(json, "base");
  out.baseline_version = version_of(json, "baseline");
  return out;
}

codec::Json to_json(const RoundSet& rounds) {
  codec::Json out = codec::Json::array();
  for (const auto& [first, last] : rounds.ranges()) {
    if (first == last)
      out.push_back(first);
    else
      out.push_back(codec::Json::array({first, last}));
  }
  return out;
}

codec::Json to_json(const IncrementalTask& task) {
  return codec::Json::object({{"round", task.round},
                              {"attempt", task.attempt},
                              {"stage", to_string(task.stage)},
                              {"consumed", to_json(task.consumed)},
                              {"refused", to_json(task.refused)},
                              {"trainProb", task.train_probability},
                              {"seed", static_cast<std::int64_t>(task.seed)},
                              {"base", task.base_version},
                              {"baseline", task.baseline_version}});
}

}  // namespace varda::training
