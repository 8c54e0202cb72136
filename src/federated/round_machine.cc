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

constexpr std::size_t kReasonBytesMax = 512;
constexpr std::size_t kTaskSuffix = 8;  // hex digits
/// A silent client may be slower than the others, or busy with another task.
constexpr std::chrono::seconds kEvaluationGraceMin{5};
constexpr std::int64_t kRememberedRounds = 2;  // synchronous: for clients that lost an answer

constexpr Choice<Task::Kind> kKinds[] = {
    {"train", Task::Kind::kTrain}, {"evaluate", Task::Kind::kEvaluate}, {"end", Task::Kind::kEnd}};

}  // namespace

Step& Step::operator|=(const Step& other) {
  save |= other.save;
  tasks |= other.tasks;
  aggregate |= other.aggregate;
  finished |= other.finished;
  return *this;
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
  std::string content = job_ + "/" + id;
  if (const std::int64_t repeat = repeats_of(round); repeat > 0 && kind == Task::Kind::kTrain)
    content += "/" + std::to_string(repeat);
  return id + "-" + codec::Sha256::of(content).hex().substr(0, kTaskSuffix);
}

std::int64_t RoundMachine::repeats_of(std::int64_t round) const {
  const auto at = repeats_.find(round);
  return at == repeats_.end() ? 0 : at->second;
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
  if (accepting_round() != round || update.repeat != repeats_of(update.trained_on))
    return Verdict::kLate;
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
      .repeats = repeats_of(round_),
      .clients = static_cast<std::int64_t>(async() ? current_.size() : chosen_.size()),
      .updates = static_cast<std::int64_t>(current_.size()),
      .seconds = std::chrono::duration<double>(now_ - opened_).count(),
      .model = model};
  for (const auto& [client, refused] : chosen_) record.refused += refused ? 1 : 0;
  MeanMetrics means;
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
  fixed_ = false;
  failures_ = 0;
  least_ = 0;
  models_.emplace(round_ + 1, model);
  const std::int64_t oldest = round_ + 1 - std::max(settings_.staleness_max, kRememberedRounds);
  models_.erase(models_.begin(), models_.lower_bound(oldest));
  repeats_.erase(repeats_.begin(), repeats_.lower_bound(oldest));
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

Step RoundMachine::fix_clients(const std::set<std::string>& clients, SteadyTime now) {
  advance(now);
  if (phase_ != Phase::kTraining || async() || !current_.empty()) return {};
  fixed_ = true;
  // Refused clients stay, so that the status has their reason.
  std::erase_if(chosen_,
                [&](const auto& entry) { return !entry.second && !clients.contains(entry.first); });
  return {.save = true, .tasks = true};
}

Step RoundMachine::refuse_keys(const std::map<std::string, std::string>& clients, SteadyTime now) {
  advance(now);
  Step step;
  if (phase_ != Phase::kTraining) return step;
  for (const auto& [client, reason] : clients) {
    const auto at = chosen_.find(client);
    if (at == chosen_.end() || std::exchange(at->second, true)) continue;
    Refusals& refusals = refusals_[client];
    ++refusals.in_a_row;
    refusals.reason = codec::clipped(reason, kReasonBytesMax);
    step |= Step{.save = true, .tasks = true};
  }
  return step;
}

Step RoundMachine::withdrew(const std::string& client, SteadyTime now) {
  advance(now);
  if (phase_ != Phase::kTraining || !fixed_ || current_.contains(client)) return {};
  if (chosen_.erase(client) == 0) return {};
  Step step{.save = true, .tasks = true};
  step |= try_close();
  return step;
}

Step RoundMachine::repeat_round(RepeatCause cause, const std::string& why, SteadyTime now) {
  advance(now);
  if (phase_ != Phase::kTraining && phase_ != Phase::kAggregating) return {};
  for (auto& [client, rounds] : counted_) rounds.erase(round_);
  std::erase_if(counted_, [](const auto& entry) { return entry.second.empty(); });
  current_.clear();
  chosen_.clear();
  fixed_ = false;
  least_ = 0;
  ++repeats_[round_];
  if (cause == RepeatCause::kFailed && ++failures_ >= kFailuresMax)
    return finish("SecureAggregationFailed",
                  "round " + std::to_string(round_) + " failed " + std::to_string(failures_) +
                      " times, at last because " + codec::clipped(why, kReasonBytesMax),
                  /*failed=*/true);
  phase_ = Phase::kWaiting;
  Step step{.save = true, .tasks = true};
  // Clients that are lost may come back.
  step |= try_open(Opening::kSettled);
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
    if (have >= quorum())
      step |= close();
    else if (fixed_)
      step |= repeat_round(RepeatCause::kFailed,
                           std::to_string(have) + " of " + std::to_string(quorum()) +
                               " updates arrived before the deadline",
                           now);
    else
      step |= restart();
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
  fixed_ = false;
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
  if (phase_ != Phase::kTraining || async() || fixed_) return {};
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
  const std::int64_t possible =
      std::count_if(chosen_.begin(), chosen_.end(), [&](const auto& entry) {
        return current_.contains(entry.first) || (!entry.second && !excluded(entry.first));
      });
  if (fixed_ && possible < quorum())
    return repeat_round(RepeatCause::kFailed,
                        std::to_string(possible) + " of " + std::to_string(quorum()) +
                            " clients are left in the secure sum",
                        now_);
  for (const auto& [client, refused] : chosen_) {
    if (fixed_ && !present_.contains(client)) continue;
    if (!refused && !excluded(client) && !current_.contains(client)) return {};
  }
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
  MeanMetrics means;
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
  if (settings_.stop)
    if (const auto end = stop_rule_.holds(*settings_.stop, metrics))
      return step |= finish(end->reason, end->message, /*failed=*/false);
  if (phase_ == Phase::kEvaluating) step |= next();
  return step;
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

}  // namespace varda::federated
