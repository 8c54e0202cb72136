#include "worker_program.h"

#include <algorithm>

namespace varda::sim {

using codec::Json;

void WorkerProgram::agent_is_gone() {
  for (Word* word : {&state_->registration, &state_->result, &state_->assignment_read})
    if (*word == Word::kUnderWay) *word = Word::kUnsaid;
  state_->assignment_read = Word::kUnsaid;
  state_->due.reset();
}

void WorkerProgram::count(std::int64_t inferences) {
  inferences_ = inferences;
  state_->counted = true;
  state_->due = SteadyTime::min();
}

void WorkerProgram::evaluate(int accuracy) {
  state_->accuracy = accuracy;
  state_->result = Word::kUnsaid;
  state_->due = SteadyTime::min();
}

void WorkerProgram::tell_result(SteadyTime now, agent::WorkerKeeper& keeper,
                                const agent::WorkerKeeper::Who& who) {
  Told& told = told_(who.uid);
  const int accuracy = state_->accuracy;
  told.possible.push_back(accuracy);
  const auto answered = [now, weak = std::weak_ptr(state_), &told, accuracy](const Status& status) {
    if (status.ok()) {
      told.acknowledged = true;
      told.possible.erase(told.possible.begin(),
                          std::find(told.possible.begin(), told.possible.end(), accuracy));
    }
    const auto there = weak.lock();
    if (!there || there->accuracy != accuracy) return;
    there->result = status.ok() ? Word::kSaid : Word::kUnsaid;
    if (!status.ok()) there->due = now + kRetry;
  };
  if (mutations_.results_are_lost) return answered({});
  state_->result = Word::kUnderWay;
  const std::string model =
      "models.sedna.io/" + who.name.ns + "/" + state_->assignment.at("model/name").as_string();
  const Json metrics = Json::object({{"accuracy", accuracy}});
  keeper.put_result(
      who, "final",
      Json::object({{"models", Json::object({{model, Json::object({{"metrics", metrics}})}})}}),
      answered);
}

void WorkerProgram::step(SteadyTime now, agent::WorkerKeeper& keeper,
                         const std::optional<std::string>& token) {
  State& state = *state_;
  state.due.reset();
  const auto who = token ? keeper.who_has(*token) : std::nullopt;
  if (!who) {
    state.due = now + kRetry;
    return;
  }
  if (state.uid != who->uid) {
    state.uid = who->uid;
    state.registration = state.assignment_read = Word::kUnsaid;
    state.counted = inferences_ > 0;
  }
  if (state.registration == Word::kUnsaid) {
    state.registration = Word::kUnderWay;
    const Json said = Json::object(
        {{"version", "1"}, {"instance", instance_}, {"capabilities", Json::array({"assignment"})}});
    keeper.put_registration(
        *who, said, [now, weak = std::weak_ptr(state_), uid = who->uid](const Status& status) {
          const auto there = weak.lock();
          if (!there || there->uid != uid) return;
          there->registration = status.ok() ? Word::kSaid : Word::kUnsaid;
          there->due = status.ok() ? SteadyTime::min() : now + kRetry;
        });
  }
  if (state.registration != Word::kSaid) return;
  if (state.counted) {
    const Json said = Json::object({{"inferenceNumber", inferences_}});
    state.counted = !keeper.put_metrics(*who, said).ok();
  }
  if (state.assignment_read == Word::kUnsaid) {
    state.assignment_read = Word::kUnderWay;
    keeper.assignment(
        *who, state.revision, kPatience,
        [now, weak = std::weak_ptr(state_)](const Result<agent::WorkerKeeper::Assignment>& answer) {
          const auto there = weak.lock();
          if (!there) return;
          there->assignment_read = Word::kUnsaid;
          there->due = answer.ok() ? SteadyTime::min() : now + kRetry;
          if (!answer.ok()) return;
          there->revision = answer->revision;
          there->assignment = answer->assignment;
        });
  }
  if (state.result == Word::kUnsaid && !state.assignment.is_null()) tell_result(now, keeper, *who);
}

}  // namespace varda::sim
