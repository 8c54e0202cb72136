// Questions to RoundMachine that change nothing.
#include <map>
#include <utility>

#include "codec/settings_reader.h"
#include "federated/round_machine.h"

namespace varda::federated {
namespace {

using codec::Choice;
using codec::choice_name;
using Phase = RoundMachine::Phase;
using ClientState = RoundMachine::ClientState;

constexpr Choice<ClientState> kClientStates[] = {
    {"Idle", ClientState::kIdle},       {"Training", ClientState::kTraining},
    {"Lost", ClientState::kLost},       {"Uploaded", ClientState::kUploaded},
    {"Refused", ClientState::kRefused}, {"Excluded", ClientState::kExcluded}};
constexpr Choice<Verdict> kVerdicts[] = {
    {"Wanted", Verdict::kWanted},       {"Duplicate", Verdict::kDuplicate},
    {"Second", Verdict::kSecond},       {"Late", Verdict::kLate},
    {"NotChosen", Verdict::kNotChosen}, {"Refused", Verdict::kRefused},
    {"Excluded", Verdict::kExcluded},   {"UnknownTask", Verdict::kUnknownTask}};

}  // namespace

std::string_view to_string(Verdict verdict) { return choice_name(kVerdicts, verdict); }
std::string_view to_string(RoundMachine::ClientState state) {
  return choice_name(kClientStates, state);
}

std::optional<Task> RoundMachine::task_for(const std::string& client) const {
  if (phase_ == Phase::kFinished)
    return Task{.kind = Task::Kind::kEnd,
                .id = task_id(Task::Kind::kEnd, round_),
                .round = round_,
                .model = model()};
  if (excluded(client)) return std::nullopt;
  if (evaluation_ && evaluation_->asked.contains(client) && !evaluation_->answers.contains(client))
    return Task{.kind = Task::Kind::kEvaluate,
                .id = task_id(Task::Kind::kEvaluate, evaluation_->round),
                .round = evaluation_->round,
                .model = evaluation_->model,
                .deadline = evaluation_->deadline};
  if (phase_ != Phase::kTraining || current_.contains(client)) return std::nullopt;
  const auto chosen = chosen_.find(client);
  if (chosen != chosen_.end() && chosen->second) return std::nullopt;  // refused
  if (!async() && chosen == chosen_.end()) return std::nullopt;
  return Task{.kind = Task::Kind::kTrain,
              .id = task_id(Task::Kind::kTrain, round_),
              .round = round_,
              .model = models_.at(round_),
              .deadline = deadline_};
}

std::optional<RoundMachine::TrainTask> RoundMachine::train_task(std::string_view id) const {
  const auto parsed = parse_task(id);
  if (!parsed || parsed->kind != Task::Kind::kTrain) return std::nullopt;
  const auto model = models_.find(parsed->round);
  if (model == models_.end()) return std::nullopt;
  return TrainTask{
      .round = parsed->round, .model = model->second, .repeat = repeats_of(parsed->round)};
}

std::optional<std::string> RoundMachine::open_task() const {
  if (phase_ != Phase::kTraining && phase_ != Phase::kAggregating) return std::nullopt;
  return task_id(Task::Kind::kTrain, round_);
}

std::set<std::string> RoundMachine::working() const {
  std::set<std::string> out;
  if (phase_ != Phase::kTraining) return out;
  for (const auto& [client, refused] : chosen_)
    if (!refused && present_.contains(client) && !excluded(client) && !current_.contains(client))
      out.insert(client);
  return out;
}

std::set<std::string> RoundMachine::models_in_use() const {
  std::set<std::string> out{model()};
  if (evaluation_) out.insert(evaluation_->model);
  return out;
}

bool RoundMachine::in_use(const Stored& stored) const {
  if (phase_ == Phase::kFinished) return false;
  for (const auto* updates : {&current_, &early_}) {
    const auto at = updates->find(stored.update.client);
    if (at == updates->end() || at->second.digest != stored.update.digest) continue;
    return stored.round == (updates == &current_ ? round_ : round_ + 1);
  }
  return false;
}

std::vector<AcceptedUpdate> RoundMachine::updates() const {
  std::vector<AcceptedUpdate> out;
  for (const auto& [client, update] : current_) out.push_back(update);
  return out;
}

std::vector<RoundMachine::Client> RoundMachine::clients() const {
  std::map<std::string, Client> out;
  const auto at = [&](const std::string& name) -> Client& {
    Client& client = out[name];
    client.name = name;
    return client;
  };
  for (const std::string& name : present_) at(name);
  const bool open = phase_ == Phase::kTraining || phase_ == Phase::kAggregating;
  if (open) {
    for (const auto& [name, refused] : chosen_)
      at(name).state = refused                   ? ClientState::kRefused
                       : present_.contains(name) ? ClientState::kTraining
                                                 : ClientState::kLost;
    if (async())
      for (const std::string& name : present_) at(name).state = ClientState::kTraining;
    for (const auto& [name, update] : current_) at(name).state = ClientState::kUploaded;
  }
  for (const auto& [name, refusals] : refusals_) {
    at(name).reason = refusals.reason;
    if (excluded(name)) at(name).state = ClientState::kExcluded;
  }
  std::vector<Client> list;
  for (auto& [name, client] : out) list.push_back(std::move(client));
  return list;
}

}  // namespace varda::federated
