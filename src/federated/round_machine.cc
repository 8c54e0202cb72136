#include "federated/round_machine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "codec/digest.h"
#include "codec/settings_reader.h"
#include "codec/text.h"

namespace varda::federated {
namespace {

using codec::Choice;
using codec::choice_name;
using codec::Json;
using Phase = RoundMachine::Phase;
using ClientState = RoundMachine::ClientState;

constexpr std::int64_t kRoundsFormat = 1;
constexpr std::size_t kReasonBytesMax = 512;
constexpr std::size_t kTaskSuffix = 8;         // hex digits
constexpr std::int64_t kRememberedRounds = 2;  // synchronous: for clients that lost an answer

constexpr Choice<Phase> kPhases[] = {{"Waiting", Phase::kWaiting},
                                     {"Training", Phase::kTraining},
                                     {"Aggregating", Phase::kAggregating},
                                     {"Evaluating", Phase::kEvaluating},
                                     {"Finished", Phase::kFinished}};
constexpr Choice<ClientState> kClientStates[] = {
    {"Idle", ClientState::kIdle},       {"Training", ClientState::kTraining},
    {"Lost", ClientState::kLost},       {"Uploaded", ClientState::kUploaded},
    {"Refused", ClientState::kRefused}, {"Excluded", ClientState::kExcluded}};
constexpr Choice<Verdict> kVerdicts[] = {
    {"Wanted", Verdict::kWanted},       {"Duplicate", Verdict::kDuplicate},
    {"Second", Verdict::kSecond},       {"Late", Verdict::kLate},
    {"NotChosen", Verdict::kNotChosen}, {"Refused", Verdict::kRefused},
    {"Excluded", Verdict::kExcluded},   {"UnknownTask", Verdict::kUnknownTask}};
constexpr Choice<Task::Kind> kKinds[] = {
    {"train", Task::Kind::kTrain}, {"evaluate", Task::Kind::kEvaluate}, {"end", Task::Kind::kEnd}};

Json json_of(const Metrics& metrics) {
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

Json json_of(const AcceptedUpdate& update) {
  return Json::object({{"client", update.client},
                       {"digest", update.digest},
                       {"trainedOn", update.trained_on},
                       {"samples", update.samples},
                       {"norm", update.norm},
                       {"controlNorm", update.control_norm},
                       {"metrics", json_of(update.metrics)}});
}

AcceptedUpdate accepted_update_of(const Json& json) {
  return {.client = json["client"].as_string(),
          .digest = json["digest"].as_string(),
          .trained_on = json["trainedOn"].as_integer(),
          .samples = json["samples"].as_double(),
          .norm = json["norm"].as_double(),
          .control_norm = json["controlNorm"].as_double(),
          .metrics = metrics_of(json["metrics"])};
}

RoundRecord record_of(const Json& json) {
  return {.round = json["round"].as_integer(),
          .attempts = json["attempts"].as_integer(),
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

/// Means of metrics by samples. Clients may report different metrics.
/// A silent client may be slower than the others, or busy with another task.
constexpr std::chrono::seconds kEvaluationGraceMin{5};

class Means {
 public:
  void add(const Metrics& metrics, double samples) {
    for (const auto& [name, value] : metrics) {
      if (!std::isfinite(value)) continue;
      auto& [sum, weight] = sums_[name];
      sum += value * samples;
      weight += samples;
    }
  }
  Metrics result() const {
    Metrics out;
    for (const auto& [name, sum] : sums_)
      if (sum.second > 0) out.emplace(name, sum.first / sum.second);
    return out;
  }

 private:
  std::map<std::string, std::pair<double, double>> sums_;
};

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

std::string_view to_string(Verdict verdict) { return choice_name(kVerdicts, verdict); }
std::string_view to_string(RoundMachine::Phase phase) { return choice_name(kPhases, phase); }
std::string_view to_string(RoundMachine::ClientState state) {
  return choice_name(kClientStates, state);
}

Step& Step::operator|=(const Step& other) {
  save |= other.save;
  tasks |= other.tasks;
  aggregate |= other.aggregate;
  finished |= other.finished;
  return *this;
}

Json to_json(const RoundRecord& record) {
  return Json::object({{"round", record.round},
                       {"attempts", record.attempts},
                       {"clients", record.clients},
                       {"updates", record.updates},
                       {"refused", record.refused},
                       {"samples", record.samples},
                       {"seconds", record.seconds},
                       {"model", record.model},
                       {"training", json_of(record.training)},
                       {"evaluation", json_of(record.evaluation)},
                       {"evaluatedBy", record.evaluated_by}});
}

RoundMachine::RoundMachine(const Options& options, SteadyTime now)
    : settings_(options.settings),
      job_(options.job),
      updates_min_(options.updates_min),
      clients_expected_(options.clients_expected),
      settle_(options.settle),
      now_(now) {
  models_.emplace(1, options.model);
}

bool RoundMachine::excluded(const std::string& client) const {
  const auto at = refusals_.find(client);
  return at != refusals_.end() && at->second.in_a_row >= kRefusalsMax;
}

void RoundMachine::advance(SteadyTime now) { now_ = std::max(now_, now); }

std::string RoundMachine::task_id(Task::Kind kind, std::int64_t round) const {
  const std::string id = std::to_string(round) + "-" + std::string(choice_name(kKinds, kind));
  return id + "-" + codec::Sha256::of(job_ + "/" + id).hex().substr(0, kTaskSuffix);
}

std::optional<RoundMachine::Parsed> RoundMachine::parse_task(std::string_view id) const {
  const std::vector<std::string_view> parts = split(id.substr(0, 64), '-');
  if (parts.size() != 3) return std::nullopt;
  const auto round = parse_integer<std::int64_t>(parts[0]);
  if (!round || *round < 1) return std::nullopt;
  for (const auto& [name, kind] : kKinds)
    if (name == parts[1] && task_id(kind, *round) == id) return Parsed{kind, *round};
  return std::nullopt;
}

std::int64_t RoundMachine::target_of(std::size_t clients) const {
  const auto all = static_cast<std::int64_t>(clients);
  std::int64_t out = settings_.clients_per_round > 0
                         ? std::min(settings_.clients_per_round, all)
                         : static_cast<std::int64_t>(
                               std::ceil(settings_.fraction * static_cast<double>(all) - 1e-9));
  if (settings_.quorum > 1) out = std::max(out, static_cast<std::int64_t>(settings_.quorum));
  return std::max({out, settings_.minimum_clients, updates_min_, least_, std::int64_t{1}});
}

std::int64_t RoundMachine::quorum() const {
  if (async())
    return std::max(
        {std::min(settings_.minimum_clients, settings_.buffer_size), updates_min_, least_});
  const std::int64_t wanted =
      settings_.quorum > 1 ? static_cast<std::int64_t>(settings_.quorum)
                           : static_cast<std::int64_t>(
                                 std::ceil(settings_.quorum * static_cast<double>(target_) - 1e-9));
  return std::max({wanted, settings_.minimum_clients, updates_min_, least_, std::int64_t{1}});
}

std::int64_t RoundMachine::updates_of_chosen() const {
  return std::count_if(current_.begin(), current_.end(),
                       [&](const auto& entry) { return chosen_.contains(entry.first); });
}

std::vector<std::string> RoundMachine::ranked(const std::set<std::string>& from,
                                              std::string_view salt) const {
  std::vector<std::pair<codec::Sha256, std::string>> order;
  const std::string prefix =
      std::to_string(settings_.seed) + "/" + std::to_string(round_) + "/" + std::string(salt) + "/";
  for (const std::string& client : from)
    order.emplace_back(codec::Sha256::of(prefix + client), client);
  std::sort(order.begin(), order.end());
  std::vector<std::string> out;
  for (auto& [rank, client] : order) out.push_back(std::move(client));
  return out;
}

std::set<std::string> RoundMachine::available() const {
  std::set<std::string> out;
  for (const std::string& client : present_)
    if (!excluded(client)) out.insert(client);
  return out;
}

// ---- events ----

Step RoundMachine::expect_clients(std::int64_t clients, SteadyTime now) {
  advance(now);
  clients_expected_ = clients;
  return try_open(Opening::kSettled);
}

Step RoundMachine::joined(const std::string& client, SteadyTime now) {
  advance(now);
  if (phase_ == Phase::kFinished || !present_.insert(client).second) return {};
  Step step = try_open(Opening::kSettled);
  step |= fill();
  return step;
}

Step RoundMachine::left(const std::string& client, SteadyTime now) {
  advance(now);
  if (present_.erase(client) == 0 || phase_ == Phase::kFinished) return {};
  Step step = try_open(Opening::kSettled);
  step |= fill();
  step |= try_close();
  step |= try_end_evaluation(/*at_deadline=*/false);
  return step;
}

std::int64_t RoundMachine::accepting_round() const {
  return phase_ == Phase::kTraining || phase_ == Phase::kWaiting ? round_ : round_ + 1;
}

Verdict RoundMachine::judge(const std::string& client, std::string_view task,
                            std::string_view digest) const {
  const auto parsed = parse_task(task);
  if (!parsed || parsed->kind != Task::Kind::kTrain) return Verdict::kUnknownTask;
  if (const auto at = counted_.find(client); at != counted_.end()) {
    if (const auto before = at->second.find(parsed->round); before != at->second.end())
      return before->second == digest ? Verdict::kDuplicate : Verdict::kSecond;
  }
  if (excluded(client)) return Verdict::kExcluded;
  if (phase_ == Phase::kFinished) return Verdict::kLate;
  if (parsed->round > round_ || !models_.contains(parsed->round))
    return parsed->round > round_ ? Verdict::kUnknownTask : Verdict::kLate;
  const bool open = phase_ == Phase::kTraining && parsed->round == round_;
  if (!open && !async() && settings_.late == Late::kDrop) return Verdict::kLate;
  const std::int64_t counts_for = accepting_round();
  // A lower number of rounds may arrive while a later round is open.
  if (counts_for > std::max(settings_.rounds, round_)) return Verdict::kLate;
  if (counts_for - parsed->round > settings_.staleness_max) return Verdict::kLate;
  const auto chosen = chosen_.find(client);
  if (counts_for == round_) {
    if (chosen != chosen_.end() && chosen->second) return Verdict::kRefused;
    if (open && !async() && chosen == chosen_.end()) return Verdict::kNotChosen;
  }
  // One update of a client for a model: a late one and a fresh one would weigh twice.
  const auto& into = counts_for == round_ ? current_ : early_;
  if (into.contains(client)) return open ? Verdict::kSecond : Verdict::kLate;
  return Verdict::kWanted;
}

RoundMachine::Accepted RoundMachine::accepted(const AcceptedUpdate& update, std::int64_t round,
                                              SteadyTime now) {
  advance(now);
  Accepted out;
  out.verdict = accept(update, round);
  if (out.verdict == Verdict::kWanted) out.step = try_close();
  return out;
}

Verdict RoundMachine::accept(const AcceptedUpdate& update, std::int64_t round) {
  const std::string task = task_id(Task::Kind::kTrain, update.trained_on);
  const Verdict verdict = judge(update.client, task, update.digest);
  if (verdict != Verdict::kWanted) return verdict;
  if (accepting_round() != round) return Verdict::kLate;
  (round == round_ ? current_ : early_).emplace(update.client, update);
  counted_[update.client][update.trained_on] = update.digest;
  return Verdict::kWanted;
}

Step RoundMachine::refused(const std::string& client, std::string_view task,
                           const std::string& reason, SteadyTime now) {
  advance(now);
  const auto parsed = parse_task(task);
  if (!parsed || parsed->kind != Task::Kind::kTrain || phase_ == Phase::kFinished) return {};
  if (const auto at = counted_.find(client);
      at != counted_.end() && at->second.contains(parsed->round))
    return {};
  Step step{.save = true, .tasks = true};
  Refusals& refusals = refusals_[client];
  if (parsed->round == round_ && phase_ == Phase::kTraining) {
    if (std::exchange(chosen_[client], true)) return {};
  }
  ++refusals.in_a_row;
  refusals.reason = codec::clipped(reason, kReasonBytesMax);
  step |= fill();
  step |= try_close();
  step |= try_end_evaluation(/*at_deadline=*/false);
  return step;
}

Step RoundMachine::evaluated(const std::string& client, std::string_view task, double samples,
                             const Metrics& metrics, SteadyTime now) {
  advance(now);
  const auto parsed = parse_task(task);
  if (!evaluation_ || !parsed || parsed->kind != Task::Kind::kEvaluate ||
      parsed->round != evaluation_->round || !evaluation_->asked.contains(client) ||
      !std::isfinite(samples) || samples < 0 || excluded(client))
    return {};
  if (!evaluation_->answers.emplace(client, Evaluation::Answer{samples, metrics}).second) return {};
  hurry_evaluation();
  Step step{.save = true, .tasks = true};
  step |= try_end_evaluation(/*at_deadline=*/false);
  return step;
}

Step RoundMachine::too_few(SteadyTime now) {
  advance(now);
  if (phase_ != Phase::kAggregating) return {};
  phase_ = Phase::kTraining;
  least_ = static_cast<std::int64_t>(current_.size()) + 1;
  return restart();
}

Step RoundMachine::aggregated(const std::string& model,
                              const std::map<std::string, std::string>& quarantined,
                              SteadyTime now) {
  advance(now);
  if (phase_ != Phase::kAggregating) return {};
  for (const auto& [client, reason] : quarantined) {
    if (current_.erase(client) == 0) continue;
    chosen_[client] = true;
    Refusals& refusals = refusals_[client];
    ++refusals.in_a_row;
    refusals.reason = codec::clipped(reason, kReasonBytesMax);
  }
  RoundRecord record{
      .round = round_,
      .attempts = attempt_,
      .clients = static_cast<std::int64_t>(async() ? current_.size() : chosen_.size()),
      .updates = static_cast<std::int64_t>(current_.size()),
      .seconds = std::chrono::duration<double>(now_ - opened_).count(),
      .model = model};
  for (const auto& [client, refused] : chosen_) record.refused += refused ? 1 : 0;
  Means means;
  for (const auto& [client, update] : current_) {
    record.samples += update.samples;
    means.add(update.metrics, update.samples);
    refusals_.erase(client);
  }
  record.training = means.result();
  history_.push_back(std::move(record));
  if (history_.size() > kHistoryMax) history_.erase(history_.begin());

  current_.clear();
  chosen_.clear();
  least_ = 0;
  models_.emplace(round_ + 1, model);
  const std::int64_t oldest = round_ + 1 - std::max(settings_.staleness_max, kRememberedRounds);
  models_.erase(models_.begin(), models_.lower_bound(oldest));
  for (auto at = counted_.begin(); at != counted_.end();) {
    at->second.erase(at->second.begin(), at->second.lower_bound(oldest));
    at = at->second.empty() ? counted_.erase(at) : std::next(at);
  }
  Step step{.save = true, .tasks = true};
  const std::int64_t every = settings_.evaluation.every;
  if (every > 0 && (round_ % every == 0 || is_last_round())) step |= begin_evaluation();
  if (phase_ == Phase::kFinished) return step;
  if (!evaluation_ || (async() && !is_last_round()))
    step |= next();
  else
    phase_ = Phase::kEvaluating;
  return step;
}

void RoundMachine::end_after_round(const std::string& reason, const std::string& message) {
  last_round_ = round_;
  last_reason_ = reason;
  last_message_ = message;
}

Step RoundMachine::fail(const std::string& reason, const std::string& message, SteadyTime now) {
  advance(now);
  if (phase_ == Phase::kFinished) return {};
  return finish(reason, message, /*failed=*/true);
}

std::optional<SteadyTime> RoundMachine::due() const {
  std::optional<SteadyTime> out;
  if (phase_ == Phase::kTraining) out = deadline_;
  if (phase_ == Phase::kWaiting) out = settled_;
  if (evaluation_ && phase_ != Phase::kFinished)
    out = out ? std::min(*out, evaluation_->deadline) : evaluation_->deadline;
  return out;
}

Step RoundMachine::time_passed(SteadyTime now) {
  advance(now);
  Step step = try_open(Opening::kSettled);
  step |= try_close();
  if (evaluation_ && now_ >= evaluation_->deadline)
    step |= try_end_evaluation(/*at_deadline=*/true);
  if (phase_ == Phase::kTraining && now_ >= deadline_) {
    const std::int64_t have =
        async() ? static_cast<std::int64_t>(current_.size()) : updates_of_chosen();
    step |= have >= quorum() ? close() : restart();
  }
  return step;
}

// ---- rounds ----

Step RoundMachine::try_open(Opening opening) {
  if (phase_ != Phase::kWaiting) return {};
  const std::set<std::string> clients = available();
  // A client that uploaded a late update is busy for this round, but still one of the clients.
  const auto needed = std::max<std::int64_t>(
      std::max(settings_.minimum_clients, updates_min_),
      !async() && settings_.quorum > 1 ? static_cast<std::int64_t>(settings_.quorum) : 1);
  const auto have = static_cast<std::int64_t>(clients.size());
  if (have < needed) {
    settled_.reset();
    const auto out = std::count_if(refusals_.begin(), refusals_.end(),
                                   [&](const auto& entry) { return excluded(entry.first); });
    if (clients_expected_ == 0 || out == 0 || clients_expected_ - out >= needed) return {};
    return finish("TooFewClients",
                  std::to_string(out) + " of " + std::to_string(clients_expected_) +
                      " clients are excluded, and a round needs " + std::to_string(needed),
                  /*failed=*/true);
  }
  const bool all = clients_expected_ > 0 && have >= clients_expected_;
  if (opening == Opening::kSettled && !all) {
    if (!settled_) settled_ = now_ + settle_;
    if (now_ < *settled_) return {};
  }
  settled_.reset();
  phase_ = Phase::kTraining;
  attempt_ = 1;
  opened_ = now_;
  deadline_ = deadline_from_now();
  target_ = target_of(clients.size());
  chosen_.clear();
  Step step{.save = true, .tasks = true};
  if (!async()) {
    for (const std::string& client : ranked(clients, "train")) {
      if (static_cast<std::int64_t>(chosen_.size()) >= target_) break;
      chosen_.emplace(client, false);
    }
  }
  step |= try_close();
  return step;
}

/// Gives the task to further clients, for those that are lost or refused.
Step RoundMachine::fill() {
  if (phase_ != Phase::kTraining || async()) return {};
  std::int64_t active = 0;
  for (const auto& [client, refused] : chosen_) {
    const bool working = present_.contains(client) && !refused && !excluded(client);
    active += working || current_.contains(client) ? 1 : 0;
  }
  if (active >= target_) return {};
  Step step;
  for (const std::string& client : ranked(available(), "train")) {
    if (active >= target_) break;
    if (!chosen_.emplace(client, false).second) continue;
    ++active;
    step |= Step{.save = true, .tasks = true};
  }
  return step;
}

Step RoundMachine::try_close() {
  if (phase_ != Phase::kTraining) return {};
  if (async()) {
    std::set<std::string> clients = available();
    for (const auto& [client, refused] : chosen_)
      if (refused) clients.erase(client);
    for (const auto& [client, update] : current_) clients.insert(client);
    const auto full = std::min(settings_.buffer_size, static_cast<std::int64_t>(clients.size()));
    const auto have = static_cast<std::int64_t>(current_.size());
    return have >= std::max(full, quorum()) ? close() : Step{};
  }
  const std::int64_t have = updates_of_chosen();
  if (have >= target_) return close();
  for (const auto& [client, refused] : chosen_)
    if (!refused && !excluded(client) && !current_.contains(client)) return {};
  // All chosen clients have answered, and no other client is left.
  return have >= quorum() ? close() : Step{};
}

Step RoundMachine::restart() {
  if (attempt_ >= kAttemptsMax) {
    const std::int64_t have =
        async() ? static_cast<std::int64_t>(current_.size()) : updates_of_chosen();
    return finish("NoQuorum",
                  "round " + std::to_string(round_) + " has " + std::to_string(have) + " of " +
                      std::to_string(quorum()) + " updates after " + std::to_string(kAttemptsMax) +
                      " deadlines",
                  /*failed=*/true);
  }
  ++attempt_;
  deadline_ = deadline_from_now();
  Step step{.save = true, .tasks = true};
  if (async()) return step;
  std::set<std::string> pool = available();
  for (const auto& [client, update] : current_)
    if (chosen_.contains(client)) pool.insert(client);
  target_ = target_of(pool.size());
  // Silent clients may be at work, and their updates still count. So all stay chosen.
  for (auto& [client, refused] : chosen_) refused = false;
  step |= fill();
  step |= try_close();
  return step;
}

Step RoundMachine::close() {
  phase_ = Phase::kAggregating;
  return {.save = true, .tasks = true, .aggregate = true};
}

Step RoundMachine::begin_evaluation() {
  Step step;
  if (evaluation_) step |= try_end_evaluation(/*at_deadline=*/true);
  if (phase_ == Phase::kFinished) return step;  // the stop rule
  Evaluation next{
      .round = round_, .model = model(), .began = now_, .deadline = deadline_from_now()};
  const std::set<std::string> clients = available();
  const std::int64_t wanted = target_of(clients.size());
  for (const std::string& client : ranked(clients, "evaluate")) {
    if (static_cast<std::int64_t>(next.asked.size()) >= wanted) break;
    next.asked.insert(client);
  }
  if (next.asked.empty()) return step;
  evaluation_ = std::move(next);
  return step;
}

// An evaluation is quick, and its metrics are means. So a connected client that stays silent costs
// the others twice the time that they needed, and not the deadline of a round.
void RoundMachine::hurry_evaluation() {
  if (2 * evaluation_->answers.size() < evaluation_->asked.size()) return;
  const Duration grace = std::max<Duration>(kEvaluationGraceMin, 2 * (now_ - evaluation_->began));
  evaluation_->deadline = std::min(evaluation_->deadline, now_ + grace);
}

Step RoundMachine::try_end_evaluation(bool at_deadline) {
  if (!evaluation_ || phase_ == Phase::kFinished) return {};
  if (!at_deadline) {
    if (evaluation_->answers.empty()) return {};
    for (const std::string& client : evaluation_->asked)
      if (present_.contains(client) && !excluded(client) && !evaluation_->answers.contains(client))
        return {};
  }
  Means means;
  for (const auto& [client, answer] : evaluation_->answers)
    means.add(answer.metrics, answer.samples);
  const Metrics metrics = means.result();
  for (RoundRecord& record : history_) {
    if (record.round != evaluation_->round) continue;
    record.evaluation = metrics;
    record.evaluated_by =
        std::count_if(evaluation_->answers.begin(), evaluation_->answers.end(),
                      [](const auto& answer) { return answer.second.samples > 0; });
  }
  evaluation_.reset();
  Step step{.save = true, .tasks = true};
  if (stop_rule_holds(metrics)) return step |= finish(reason_, message_, /*failed=*/false);
  if (phase_ == Phase::kEvaluating) step |= next();
  return step;
}

bool RoundMachine::stop_rule_holds(const Metrics& metrics) {
  if (!settings_.stop) return false;
  const StopSettings& stop = *settings_.stop;
  const auto at = metrics.find(stop.metric);
  if (at == metrics.end()) return false;
  const double value = at->second;
  const std::string shown = stop.metric + " is " + codec::write_json(value);
  if ((stop.at_least && value >= *stop.at_least) || (stop.at_most && value <= *stop.at_most)) {
    reason_ = "StopMetric";
    message_ = shown;
    return true;
  }
  const bool better = !best_ || (stop.lower_is_better() ? value < *best_ : value > *best_);
  if (better) best_ = value;
  without_better_ = better ? 0 : without_better_ + 1;
  if (stop.patience == 0 || without_better_ < stop.patience) return false;
  reason_ = "Patience";
  message_ = shown + ", not better than " + codec::write_json(*best_) + " for " +
             std::to_string(without_better_) + " evaluations";
  return true;
}

/// The step after a round that is aggregated, and evaluated if that is due.
Step RoundMachine::next() {
  if (last_round_ == round_) return finish(last_reason_, last_message_, /*failed=*/false);
  if (round_ >= settings_.rounds)
    return finish("Complete", std::to_string(round_) + " rounds", /*failed=*/false);
  ++round_;
  current_ = std::exchange(early_, {});
  phase_ = Phase::kWaiting;
  Step step{.save = true, .tasks = true};
  step |= try_open(Opening::kAtOnce);
  return step;
}

Step RoundMachine::finish(std::string reason, std::string message, bool failed) {
  phase_ = Phase::kFinished;
  failed_ = failed;
  reason_ = std::move(reason);
  message_ = std::move(message);
  evaluation_.reset();
  present_.clear();
  return {.save = true, .tasks = true, .finished = true};
}

// ---- views ----

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
  return TrainTask{.round = parsed->round, .model = model->second};
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

// ---- state ----

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
                           {"openMilliseconds", open ? milliseconds_until(now, opened_) : 0},
                           {"leftMilliseconds", milliseconds_until(deadline_, now)}});
  Json models = Json::array();
  for (const auto& [round, digest] : models_)
    models.push_back(Json::object({{"round", round}, {"sha256", digest}}));
  out.set("models", std::move(models));
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
    for (const auto& [client, update] : *updates) list.push_back(json_of(update));
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
      answers.push_back(Json::object(
          {{"client", client}, {"samples", answer.samples}, {"metrics", json_of(answer.metrics)}}));
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
  if (best_) out.set("best", *best_);
  out.set("withoutBetter", without_better_);
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
  constexpr std::int64_t kRoundMax = 1'000'000;
  if (out.round_ < 1 || out.round_ > kRoundMax || out.attempt_ < 1) return corrupt;
  out.opened_ = now - milliseconds_of(state["openMilliseconds"]);
  out.deadline_ = now + milliseconds_of(state["leftMilliseconds"]);
  out.models_.clear();
  for (const Json& model : state["models"].as_array())
    out.models_.emplace(model["round"].as_integer(), model["sha256"].as_string());
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
  if (const Json* best = state.find("best")) out.best_ = best->as_double();
  out.without_better_ = state["withoutBetter"].as_integer();
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
