// The state of RoundMachine as JSON, for the disk.
#include <algorithm>
#include <cmath>
#include <utility>

#include "codec/digest.h"
#include "codec/settings_reader.h"
#include "federated/round_machine.h"

namespace varda::federated {
namespace {

using codec::Choice;
using codec::Json;
using Phase = RoundMachine::Phase;

constexpr std::int64_t kRoundsFormat = 1;

constexpr Choice<Phase> kPhases[] = {{"Waiting", Phase::kWaiting},
                                     {"Training", Phase::kTraining},
                                     {"Aggregating", Phase::kAggregating},
                                     {"Evaluating", Phase::kEvaluating},
                                     {"Finished", Phase::kFinished}};

Json milliseconds_until(SteadyTime then, SteadyTime now) {
  return std::max<std::int64_t>(
      0, std::chrono::duration_cast<std::chrono::milliseconds>(then - now).count());
}

/// A number of milliseconds that a file may contain. The limit keeps sums of times in range.
std::chrono::milliseconds milliseconds_of(const Json& json) {
  constexpr std::int64_t kMax = std::int64_t{400} * 86'400'000;
  return std::chrono::milliseconds(std::clamp<std::int64_t>(json.as_integer(), 0, kMax));
}

}  // namespace

std::string_view to_string(RoundMachine::Phase phase) { return codec::choice_name(kPhases, phase); }

Json RoundMachine::to_json(SteadyTime now) const {
  now = std::max(now, now_);
  const bool open = phase_ == Phase::kTraining || phase_ == Phase::kAggregating;
  Json out = Json::object({{"format", kRoundsFormat},
                           {"job", job_},
                           {"phase", to_string(phase_)},
                           {"round", round_},
                           {"attempt", attempt_},
                           {"target", target_},
                           {"least", least_},
                           {"fixed", fixed_},
                           {"failures", failures_},
                           {"openMilliseconds", open ? milliseconds_until(now, opened_) : 0},
                           {"leftMilliseconds", milliseconds_until(deadline_, now)}});
  Json models = Json::array();
  for (const auto& [round, digest] : models_)
    models.push_back(Json::object({{"round", round}, {"sha256", digest}}));
  out.set("models", std::move(models));
  Json repeats = Json::array();
  for (const auto& [round, count] : repeats_)
    repeats.push_back(Json::object({{"round", round}, {"count", count}}));
  out.set("repeats", std::move(repeats));
  Json present = Json::array();
  for (const std::string& client : present_) present.push_back(client);
  out.set("present", std::move(present));
  Json chosen = Json::array();
  for (const auto& [client, refused] : chosen_)
    chosen.push_back(Json::object({{"client", client}, {"refused", refused}}));
  out.set("chosen", std::move(chosen));
  for (const auto& [name, updates] :
       {std::pair("updates", &current_), std::pair("early", &early_)}) {
    Json list = Json::array();
    for (const auto& [client, update] : *updates) list.push_back(federated::to_json(update));
    out.set(name, std::move(list));
  }
  Json counted = Json::array();
  for (const auto& [client, rounds] : counted_)
    for (const auto& [round, digest] : rounds)
      counted.push_back(Json::object({{"client", client}, {"round", round}, {"digest", digest}}));
  out.set("counted", std::move(counted));
  Json refusals = Json::array();
  for (const auto& [client, refusal] : refusals_)
    refusals.push_back(Json::object(
        {{"client", client}, {"count", refusal.in_a_row}, {"reason", refusal.reason}}));
  out.set("refusals", std::move(refusals));
  if (evaluation_) {
    Json asked = Json::array(), answers = Json::array();
    for (const std::string& client : evaluation_->asked) asked.push_back(client);
    for (const auto& [client, answer] : evaluation_->answers)
      answers.push_back(Json::object({{"client", client},
                                      {"samples", answer.samples},
                                      {"metrics", federated::to_json(answer.metrics)}}));
    out.set("evaluation",
            Json::object({{"round", evaluation_->round},
                          {"model", evaluation_->model},
                          {"leftMilliseconds", milliseconds_until(evaluation_->deadline, now)},
                          {"asked", std::move(asked)},
                          {"answers", std::move(answers)}}));
  }
  Json history = Json::array();
  for (const RoundRecord& record : history_) history.push_back(federated::to_json(record));
  out.set("history", std::move(history));
  if (stop_rule_.best) out.set("best", *stop_rule_.best);
  out.set("withoutBetter", stop_rule_.without_better);
  if (phase_ == Phase::kFinished) {
    out.set("failed", failed_);
    out.set("reason", reason_);
    out.set("message", message_);
  }
  return out;
}

Result<RoundMachine> RoundMachine::restore(const Options& options, const Json& state,
                                           const std::vector<Stored>& stored, SteadyTime now) {
  const Error corrupt(Code::kCorrupt, "not a state of the rounds");
  RoundMachine out(options, now);
  const auto phase = std::find_if(std::begin(kPhases), std::end(kPhases), [&](const auto& choice) {
    return choice.first == state["phase"].as_string();
  });
  if (state["format"].as_integer() != kRoundsFormat || phase == std::end(kPhases)) return corrupt;
  out.job_ = state["job"].as_string();
  out.phase_ = phase->second;
  out.round_ = state["round"].as_integer();
  out.attempt_ = state["attempt"].as_integer();
  out.target_ = state["target"].as_integer();
  out.least_ = state["least"].as_integer();
  out.fixed_ = state["fixed"].as_bool();
  out.failures_ = state["failures"].as_integer();
  constexpr std::int64_t kRoundMax = 1'000'000;
  if (out.round_ < 1 || out.round_ > kRoundMax || out.attempt_ < 1) return corrupt;
  out.opened_ = now - milliseconds_of(state["openMilliseconds"]);
  out.deadline_ = now + milliseconds_of(state["leftMilliseconds"]);
  out.models_.clear();
  for (const Json& model : state["models"].as_array())
    out.models_.emplace(model["round"].as_integer(), model["sha256"].as_string());
  for (const Json& item : state["repeats"].as_array()) {
    const std::int64_t count = item["count"].as_integer();
    if (count < 1 || count > kRoundMax) return corrupt;
    out.repeats_[item["round"].as_integer()] = count;
  }
  // Phases before the aggregation train on the round's model; the later ones have its result.
  const bool has_result = out.phase_ == Phase::kEvaluating;
  const bool finished = out.phase_ == Phase::kFinished;
  if (out.models_.empty() ||
      (!finished && !out.models_.contains(out.round_ + (has_result ? 1 : 0))))
    return corrupt;
  for (const auto& [round, digest] : out.models_)
    if (!codec::Sha256::parse(digest).ok() || round < 1 || round > out.round_ + 1) return corrupt;
  for (const Json& chosen : state["chosen"].as_array())
    out.chosen_.emplace(chosen["client"].as_string(), chosen["refused"].as_bool());
  for (auto& [name, updates] :
       {std::pair("updates", &out.current_), std::pair("early", &out.early_)}) {
    for (const Json& item : state[name].as_array()) {
      AcceptedUpdate update = accepted_update_of(item);
      if (!codec::Sha256::parse(update.digest).ok() || !std::isfinite(update.samples))
        return corrupt;
      std::string client = update.client;
      updates->emplace(std::move(client), std::move(update));
    }
  }
  for (const Json& item : state["counted"].as_array())
    out.counted_[item["client"].as_string()][item["round"].as_integer()] =
        item["digest"].as_string();
  for (const Json& item : state["refusals"].as_array())
    out.refusals_[item["client"].as_string()] = {item["count"].as_integer(),
                                                 item["reason"].as_string()};
  if (const Json& json = state["evaluation"]; json.is_object()) {
    out.evaluation_ = Evaluation{};
    Evaluation& evaluation = *out.evaluation_;
    evaluation.round = json["round"].as_integer();
    evaluation.model = json["model"].as_string();
    evaluation.began = now;
    evaluation.deadline = now + milliseconds_of(json["leftMilliseconds"]);
    if (!codec::Sha256::parse(evaluation.model).ok()) return corrupt;
    for (const Json& client : json["asked"].as_array()) evaluation.asked.insert(client.as_string());
    for (const Json& item : json["answers"].as_array())
      evaluation.answers[item["client"].as_string()] = {item["samples"].as_double(),
                                                        metrics_of(item["metrics"])};
  }
  if (has_result && !out.evaluation_) return corrupt;
  for (const Json& record : state["history"].as_array()) {
    if (out.history_.size() == kHistoryMax) return corrupt;
    out.history_.push_back(record_of(record));
  }
  if (const Json* best = state.find("best")) out.stop_rule_.best = best->as_double();
  out.stop_rule_.without_better = state["withoutBetter"].as_integer();
  if (finished) {
    out.failed_ = state["failed"].as_bool();
    out.reason_ = state["reason"].as_string();
    out.message_ = state["message"].as_string();
  } else {
    for (const Json& client : state["present"].as_array()) out.present_.insert(client.as_string());
  }
  for (const Stored& one : stored) (void)out.accept(one.update, one.round);
  return out;
}

}  // namespace varda::federated
