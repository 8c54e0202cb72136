#include "worker_program.h"

#include <algorithm>

namespace varda::sim {

using codec::Json;

void WorkerProgram::agent_stopped() {
  for (Message* message : {&state_->registration, &state_->result, &state_->assignment_read})
    if (*message == Message::kUnderWay) *message = Message::kUnsent;
  state_->assignment_read = Message::kUnsent;
  state_->due.reset();
}

void WorkerProgram::count(std::int64_t inferences) {
  inferences_ = inferences;
  state_->counted = true;
  state_->due = SteadyTime::min();
}

void WorkerProgram::evaluate(int accuracy) {
  state_->accuracy = accuracy;
  state_->result = Message::kUnsent;
  state_->due = SteadyTime::min();
}

void WorkerProgram::send_result(SteadyTime now, agent::workers::Manager& manager,
                                const agent::workers::Manager::Caller& caller) {
  Reported& reported = reported_(caller.uid);
  const int accuracy = state_->accuracy;
  reported.possible.push_back(accuracy);
  const auto answered = [now, weak = std::weak_ptr(state_), &reported,
                         accuracy](const Status& status) {
    if (status.ok()) {
      reported.acknowledged = true;
      reported.possible.erase(
          reported.possible.begin(),
          std::find(reported.possible.begin(), reported.possible.end(), accuracy));
    }
    const auto alive = weak.lock();
    if (!alive || alive->accuracy != accuracy) return;
    alive->result = status.ok() ? Message::kSent : Message::kUnsent;
    if (!status.ok()) alive->due = now + kRetry;
  };
  if (mutations_.results_are_lost) return answered({});
  state_->result = Message::kUnderWay;
  const std::string model =
      "models.sedna.io/" + caller.name.ns + "/" + state_->assignment.at("model/name").as_string();
  const Json metrics = Json::object({{"accuracy", accuracy}});
  manager.put_result(
      caller, "final",
      Json::object({{"models", Json::object({{model, Json::object({{"metrics", metrics}})}})}}),
      answered);
}

void WorkerProgram::step(SteadyTime now, agent::workers::Manager& manager,
                         const std::optional<std::string>& token) {
  State& state = *state_;
  state.due.reset();
  const auto caller = token ? manager.find_by_token(*token) : std::nullopt;
  if (!caller) {
    state.due = now + kRetry;
    return;
  }
  if (state.uid != caller->uid) {
    state.uid = caller->uid;
    state.registration = state.assignment_read = Message::kUnsent;
    state.counted = inferences_ > 0;
  }
  if (state.registration == Message::kUnsent) {
    state.registration = Message::kUnderWay;
    const Json sent = Json::object(
        {{"version", "1"}, {"instance", instance_}, {"capabilities", Json::array({"assignment"})}});
    manager.put_registration(
        *caller, sent,
        [now, weak = std::weak_ptr(state_), uid = caller->uid](const Status& status) {
          const auto alive = weak.lock();
          if (!alive || alive->uid != uid) return;
          alive->registration = status.ok() ? Message::kSent : Message::kUnsent;
          alive->due = status.ok() ? SteadyTime::min() : now + kRetry;
        });
  }
  if (state.registration != Message::kSent) return;
  if (state.counted) {
    const Json sent = Json::object({{"inferenceNumber", inferences_}});
    state.counted = !manager.put_metrics(*caller, sent).ok();
  }
  if (state.assignment_read == Message::kUnsent) {
    state.assignment_read = Message::kUnderWay;
    manager.assignment(*caller, state.revision, kPatience,
                       [now, weak = std::weak_ptr(state_)](
                           const Result<agent::workers::Manager::Assignment>& answer) {
                         const auto alive = weak.lock();
                         if (!alive) return;
                         alive->assignment_read = Message::kUnsent;
                         alive->due = answer.ok() ? SteadyTime::min() : now + kRetry;
                         if (!answer.ok()) return;
                         alive->revision = answer->revision;
                         alive->assignment = answer->assignment;
                       });
  }
  if (state.result == Message::kUnsent && !state.assignment.is_null())
    send_result(now, manager, *caller);
}

}  // namespace varda::sim
