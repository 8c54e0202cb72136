#include "incremental/round_machine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "codec/settings_reader.h"
#include "codec/text.h"
#include "incremental/internal/tally.h"

namespace varda::incremental {
namespace {

using codec::Json;
using std::chrono::milliseconds;

constexpr std::int64_t kVersionMax = 1'000'000'000'000'000;  // larger numbers are dates or digests
constexpr std::int64_t kCountMax = 1'000'000'000'000;        // of reports; keeps sums in range
constexpr auto kStartsKept = std::chrono::hours(24);
constexpr int kStepsMax = 64;               // of one call; a round has about ten
constexpr std::int64_t kAbsorbedParts = 8;  // writes of a window's counters
/// A roll-out waits so long for a server that is down.
constexpr auto kServerWait = std::chrono::minutes(10);

/// A text that the state may keep.
std::string text_of(std::string_view text) {
  std::string out = codec::clipped(text, State::kTextMax);
  for (char& c : out)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';  // each would take six bytes of JSON
  return out;
}

/// Doubles from `first` with each failure, up to the limit.
milliseconds backoff_after(std::int64_t failures, milliseconds first) {
  milliseconds out = first;
  if (first.count() == 0) return out;
  for (std::int64_t i = 1; i < failures && out < Retry::kBackoffMax; ++i) out *= 2;
  return std::min(out, std::max(first, Retry::kBackoffMax));
}

std::int64_t bounded_count(std::int64_t count) {
  return std::clamp<std::int64_t>(count, 0, kCountMax);
}

enum class Scores : std::uint8_t { kKeep, kDrop };

Counters bounded(const Counters& counters, Scores scores) {
  Counters out{.since = text_of(counters.since),
               .answers = bounded_count(counters.answers),
               .failures = bounded_count(counters.failures),
               .hard = bounded_count(counters.hard),
               .agreed = bounded_count(counters.agreed),
               .base_answers = bounded_count(counters.base_answers),
               .base_hard = bounded_count(counters.base_hard),
               .scores = {}};
  if (scores == Scores::kKeep) out.scores = counters.scores;
  if (out.scores.size() > kBinsMax) out.scores.clear();
  for (std::int64_t& count : out.scores) count = bounded_count(count);
  return out;
}

double part_of(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string percent_text(double share) { return number_text(100 * share) + " %"; }

class Machine {
 public:
  Machine(const Settings& settings, const State& state, const Observation& observation)
      : settings_(settings), input_(state), observation_(observation), state_(state) {
    // The first moment of 1970 means that a time is absent.
    now_ = std::max(std::chrono::floor<milliseconds>(observation.now),
                    std::chrono::sys_time<milliseconds>(milliseconds(1)));
  }

  Advance run() {
    limit_times();
    adopt_initial_version();
    count_samples();
    measure_answers();
    roll_back_on_request();
    watch_serving_version();
    for (int i = 0; i < kStepsMax && step(); ++i) {
    }
    out_.state = std::move(state_);
    out_.changed = out_.state != input_;
    return std::move(out_);
  }

 private:
  // ---- times ----

  /// A clock that stepped back must not make a wait longer than it is.
  void limit_times() {
    const auto limit = [this](WallTime& time) { time = std::min(time, now_); };
    limit(state_.since);
    limit(state_.attempt_since);
    limit(state_.started);
    limit(state_.rolled_at);
    limit(state_.serving_since);
    if (state_.ended) limit(*state_.ended);
    for (WallTime& start : state_.starts) limit(start);
    std::erase_if(state_.starts, [this](WallTime start) { return now_ - start >= kStartsKept; });
  }

  void due(WallTime time) {
    if (time <= now_) time = now_ + milliseconds(1);
    out_.due = out_.due ? std::min(*out_.due, time) : time;
  }

  // ---- states ----

  void enter(Stage stage, Phase phase, std::string_view reason, std::string message) {
    message = text_of(message);
    const Transition transition{.round = state_.round,
                                .stage = stage,
                                .phase = phase,
                                .at = now_,
                                .reason = std::string(reason),
                                .message = message};
    state_.stage = stage;
    state_.phase = phase;
    state_.since = now_;
    state_.message = std::move(message);
    record(transition);
  }

  void record(const Transition& transition) {
    out_.transitions.push_back(transition);
    state_.history.push_back(transition);
    if (state_.history.size() > State::kTransitionsKept)
      state_.history.erase(state_.history.begin());
  }

  /// The phase stays, maybe with another reason.
  bool wait(std::string message) {
    state_.message = text_of(message);
    return false;
  }

  /// True if something changed, so that another step may follow.
  bool step() {
    switch (state_.stage) {
      case Stage::kTrain:
        if (state_.phase == Phase::kWaiting) return wait_for_trigger();
        [[fallthrough]];
      case Stage::kEval:
        if (state_.phase == Phase::kReady) return start_attempt();
        return follow_worker();
      case Stage::kDeploy:
        if (state_.phase == Phase::kReady) return start_deployment();
        return state_.trial ? follow_trial() : roll_out();
    }
    return false;
  }

  // ---- samples ----

  void adopt_initial_version() {
    if (!state_.serving.version.empty() || observation_.initial_version.empty()) return;
    state_.serving = {.version = text_of(observation_.initial_version), .round = 0};
    state_.serving_since = now_;
  }

  void count_samples() {
    if (!observation_.samples) return;
    const std::int64_t seen = bounded_count(*observation_.samples);
    // Files were removed. Used ones are removed first as a rule, but a new sample that counts as
    // used only delays a round.
    if (seen < state_.samples_seen) state_.used = std::min(state_.used, seen);
    state_.samples_seen = seen;
  }

  // ---- measurements ----

  /// The counters of the nodes that serve `version`.
  Readings readings_of(const std::string& version, Scores scores) const {
    Readings out;
    if (version.empty()) return out;
    for (const NodeReport& node : observation_.nodes) {
      if (node.serving != version || out.size() == State::kTallyNodesMax) continue;
      out.emplace(text_of(node.name), bounded(node.counters, scores));
    }
    return out;
  }

  void keep(Tally& tally, const Readings& readings, std::int64_t window) {
    const std::int64_t before = tally.carried.answers + tally.carried.failures;
    const Counters sum = growth(tally, readings);
    const std::int64_t pending = sum.answers + sum.failures - before;
    if (has_new_epoch(tally, readings) ||
        pending >= std::max<std::int64_t>(1, window / kAbsorbedParts))
      absorb(tally, readings);
  }

  void measure_answers() {
    const Trigger& trigger = settings_.trigger;
    if (!needs_answers(trigger.rule)) return;
    const Readings readings = readings_of(state_.serving.version, Scores::kKeep);
    if (readings.empty()) return;
    const Counters sum = growth(state_.answers, readings);
    if (sum.answers < trigger.window) return keep(state_.answers, readings, trigger.window);
    state_.hard_share = part_of(sum.hard, sum.answers);
    restart(state_.answers, readings);
    if (total(sum.scores) == 0) return;
    if (state_.reference.size() != sum.scores.size()) {
      // The first window of a version is the reference.
      state_.reference = sum.scores;
      state_.recent.clear();
      state_.page_hinkley = {};
    } else {
      state_.recent = sum.scores;
    }
    state_.page_hinkley.add(mean_score(sum.scores), trigger.delta);
  }

  void forget_measurements() {
    state_.answers = {};
    state_.reference.clear();
    state_.recent.clear();
    state_.hard_share.reset();
    state_.page_hinkley = {};
  }

  // ---- Train: the trigger ----

  bool wait_for_trigger() {
    if (state_.serving.version.empty()) return wait("the initial version is not known yet");
    if (observation_.suspended) return wait("the job is suspended");
    const bool manual = !observation_.train_request.empty() &&
                        text_of(observation_.train_request) != state_.train_request;
    const Trigger& trigger = settings_.trigger;
    if (manual) {
      const auto fresh = new_samples(state_, observation_);
      const bool needs_samples = trigger.minimum_samples > 0;
      if (!fresh && needs_samples)
        return wait("the manual request waits until the samples are counted");
      state_.train_request = text_of(observation_.train_request);
      if (!needs_samples || *fresh > 0) return begin_round("manual request");
      refuse_request();
    }
    if (trigger.manual) return wait("waits for a manual request");
    due(now_ + trigger.check_period);
    if (const auto until = start_allowed_at(); until && *until > now_) {
      due(*until);
      return wait("no round begins before " + time_text(*until) + ": " + std::string(limit_));
    }
    const auto samples = new_samples(state_, observation_);
    if (!samples && trigger.minimum_samples > 0) return wait("samples are not counted yet");
    const RuleResult result = check(trigger.rule, {.now = now_,
                                                   .samples = samples,
                                                   .metrics = observation_.metrics,
                                                   .hard_share = state_.hard_share,
                                                   .reference = state_.reference,
                                                   .recent = state_.recent,
                                                   .page_hinkley = state_.page_hinkley});
    if (result.opens) due(*result.opens);
    if (!result.holds) return wait(result.reason);
    if (samples && *samples < trigger.minimum_samples)
      return wait(std::to_string(*samples) + " of at least " +
                  std::to_string(trigger.minimum_samples) + " new samples");
    return begin_round(result.reason);
  }

  /// A round without new samples could only fail, so the request uses up no number of a round.
  void refuse_request() {
    // Repeated requests must not displace the transitions of rounds.
    if (!state_.history.empty() && state_.history.back().reason == kNothingToTrain)
      state_.history.pop_back();
    record({.round = state_.round,
            .stage = Stage::kTrain,
            .phase = Phase::kWaiting,
            .at = now_,
            .reason = std::string(kNothingToTrain),
            .message = state_.samples_seen == 0
                           ? "nothing to train on: the Dataset has no samples"
                           : "nothing to train on: earlier rounds have used all " +
                                 std::to_string(state_.samples_seen) + " samples of the Dataset"});
  }

  /// The end of cool-down, quota and back-off; sets limit_.
  std::optional<WallTime> start_allowed_at() {
    std::optional<WallTime> out;
    const auto later = [&](WallTime time, std::string_view why) {
      if (out && time <= *out) return;
      out = time;
      limit_ = why;
    };
    const Trigger& trigger = settings_.trigger;
    if (state_.ended && trigger.cooldown.count() > 0)
      later(*state_.ended + trigger.cooldown, "cool-down");
    if (state_.ended && state_.failed_in_a_row > 0)
      later(*state_.ended + backoff_after(state_.failed_in_a_row, settings_.retry.backoff),
            "the last round failed");
    const auto quota = static_cast<std::size_t>(trigger.quota_per_day);
    if (quota > 0 && state_.starts.size() >= quota)
      later(state_.starts[state_.starts.size() - quota] + kStartsKept,
            "the quota of the day is used up");
    return out;
  }

  bool begin_round(const std::string& why) {
    ++state_.round;
    state_.trigger = text_of(why);
    state_.base = state_.serving.version;
    state_.candidate.clear();
    state_.digest.clear();
    state_.started = now_;
    state_.attempt = 0;
    state_.attempts = 0;
    state_.selected = 0;
    state_.samples_at_start = new_samples(state_, observation_).value_or(0);
    state_.verdict.reset();
    state_.rolled.clear();
    state_.trial.reset();
    state_.starts.push_back(now_);
    if (state_.starts.size() > static_cast<std::size_t>(Trigger::kQuotaMax))
      state_.starts.erase(state_.starts.begin());
    // A drift fires once: the next decision needs further answers.
    state_.recent.clear();
    state_.hard_share.reset();
    state_.page_hinkley = {};
    enter(Stage::kTrain, Phase::kReady, "Triggered",
          "round " + std::to_string(state_.round) + " begins: " + state_.trigger);
    return true;
  }

  // ---- Train and Eval: workers ----

  bool start_attempt() {
    if (!observation_.blocked.empty()) return wait(observation_.blocked);
    if (state_.attempt > 0) {
      const WallTime at = state_.since + backoff_after(state_.attempt, settings_.retry.backoff);
      if (at > now_) {
        due(at);
        return false;
      }
    }
    ++state_.attempt;
    ++state_.attempts;
    state_.attempt_since = now_;
    if (state_.stage == Stage::kTrain) state_.candidate = next_version();
    enter(state_.stage, Phase::kStarting, "Starting",
          "attempt " + std::to_string(state_.attempt) + " of " +
              std::to_string(settings_.retry.attempts) + " starts");
    return true;
  }

  /// A number above all that exist. Each attempt gets one of its own: a version that a dead attempt
  /// uploaded has other bytes.
  std::string next_version() {
    std::int64_t highest = state_.last_version;
    const auto look = [&](std::string_view version) {
      const auto number = parse_integer<std::int64_t>(version);
      if (number && *number > highest && *number < kVersionMax) highest = *number;
    };
    for (const std::string& version : observation_.versions) look(version);
    for (const ServedVersion& served : state_.previous) look(served.version);
    look(state_.serving.version);
    state_.last_version = highest + 1;
    return std::to_string(state_.last_version);
  }

  const WorkerReport* report() const {
    const auto at = std::find_if(observation_.workers.begin(), observation_.workers.end(),
                                 [this](const WorkerReport& worker) {
                                   return worker.stage == state_.stage &&
                                          worker.round == state_.round &&
                                          worker.attempt == state_.attempt;
                                 });
    return at == observation_.workers.end() ? nullptr : &*at;
  }

  bool follow_worker() {
    const WorkerReport* worker = report();
    if (worker != nullptr && worker->phase == Phase::kCompleted) return complete_attempt(*worker);
    if (worker != nullptr && worker->phase == Phase::kFailed && worker->nothing_new)
      correct_count();
    if (worker != nullptr && worker->phase == Phase::kFailed)
      return fail_attempt(worker->message, worker->permanent);
    if (worker != nullptr && worker->phase == Phase::kRunning && state_.phase != Phase::kRunning) {
      enter(state_.stage, Phase::kRunning, "Running",
            worker->message.empty() ? "the worker runs" : worker->message);
      return true;
    }
    const milliseconds deadline = settings_.retry.deadline;
    if (deadline.count() > 0) {
      if (now_ - state_.attempt_since >= deadline)
        return fail_attempt("no result within the deadline of the attempt", false);
      due(state_.attempt_since + deadline);
    }
    return false;
  }

  /// A disk that was absent for a while made used samples count as new. The trainer knows better,
  /// and without its answer the trigger would fire for ever.
  void correct_count() {
    state_.used = std::min(state_.samples_seen, state_.used + state_.samples_at_start);
    state_.samples_at_start = 0;
  }

  bool fail_attempt(const std::string& why, bool permanent) {
    const std::string message = why.empty() ? "the worker failed" : text_of(why);
    if (!permanent && state_.attempt < settings_.retry.attempts) {
      enter(state_.stage, Phase::kReady, "AttemptFailed",
            "attempt " + std::to_string(state_.attempt) + " failed: " + message);
      return true;
    }
    const Stage stage = state_.stage;
    enter(stage, Phase::kFailed, "AttemptsFailed", message);
    return end_round(Outcome::kFailed, stage == Stage::kTrain ? "TrainFailed" : "EvalFailed",
                     message);
  }

  bool complete_attempt(const WorkerReport& worker) {
    std::optional<Comparison> comparison;
    if (!worker.comparison.is_null()) {
      auto parsed = parse_comparison(worker.comparison);
      if (!parsed.ok()) return fail_attempt("bad comparison: " + parsed.error().message(), false);
      if (parsed->round != 0 && parsed->round != state_.round)
        return fail_attempt("the comparison is of round " + std::to_string(parsed->round), false);
      comparison = std::move(*parsed);
    }
    const bool training = state_.stage == Stage::kTrain;
    const bool decides = !training || !settings_.separate_evaluation;
    if (decides && !comparison) return fail_attempt("the worker reported no comparison", false);
    if (training) {
      if (!worker.version.empty()) state_.candidate = text_of(worker.version);
      if (is_in_service(state_.candidate))
        return fail_attempt(
            "the candidate has the name of version " + state_.candidate + ", which serves already",
            false);
      state_.digest = text_of(worker.digest);
      state_.selected = comparison && comparison->selected ? comparison->selected->total()
                                                           : state_.samples_at_start;
      settle_ledger();
      enter(
          Stage::kTrain, Phase::kCompleted, "Trained",
          "version " + state_.candidate + " from " + std::to_string(state_.selected) + " samples");
      if (!decides) {
        state_.attempt = 0;
        enter(Stage::kEval, Phase::kReady, "Trained", "the evaluation begins");
        return true;
      }
    }
    return pass_gate(*comparison);
  }

  bool is_in_service(const std::string& version) const {
    return version == state_.serving.version ||
           std::any_of(state_.previous.begin(), state_.previous.end(),
                       [&](const ServedVersion& served) { return served.version == version; });
  }

  /// The trainer has read the assignment of this round, so the ledger knows all rounds before.
  void settle_ledger() {
    state_.settled = std::max(state_.settled, state_.round - 1);
    std::erase_if(state_.consumed, [this](std::int64_t round) { return round <= state_.settled; });
    state_.refused.clear();
  }

  bool pass_gate(const Comparison& comparison) {
    state_.verdict = judge(settings_.gate, settings_.deploy_conditions, comparison);
    const GateVerdict verdict = *state_.verdict;
    enter(Stage::kEval, Phase::kCompleted, "Evaluated", verdict.message);
    if (!verdict.passed) {
      enter(Stage::kDeploy, Phase::kFailed, verdict.reason, verdict.message);
      return end_round(Outcome::kRefused, verdict.reason, verdict.message);
    }
    enter(Stage::kDeploy, Phase::kReady, verdict.reason, verdict.message);
    return true;
  }

  // ---- Deploy ----

  bool start_deployment() {
    if (settings_.deploy_timer && !settings_.deploy_timer->contains(now_)) {
      due(settings_.deploy_timer->opens(now_));
      return wait("the window " + settings_.deploy_timer->text() + " is closed");
    }
    if (!observation_.deploys) return accept("no server follows the model");
    const Counters before = growth({}, readings_of(state_.serving.version, Scores::kDrop));
    state_.hard_share_before.reset();
    if (before.answers >= settings_.rollback.answers)
      state_.hard_share_before = part_of(before.hard, before.answers);
    if (settings_.trial) {
      state_.trial = Tally{};
      enter(Stage::kDeploy, Phase::kStarting, "Trial",
            "version " + state_.candidate + " goes on trial");
    } else {
      watch_candidate();
      enter(Stage::kDeploy, Phase::kStarting, "RollOut",
            "version " + state_.candidate + " replaces " + state_.serving.version);
    }
    return true;
  }

  /// From here on the counters of the candidate matter, no longer those of the base.
  void watch_candidate() {
    state_.watched = false;
    state_.live = {};
    state_.live_windows = 0;
  }

  bool refuse(std::string_view reason, const std::string& message) {
    served_ = state_.trial.has_value() || !state_.rolled.empty();
    if (served_) out_.rolled_back = state_.candidate;
    enter(Stage::kDeploy, Phase::kFailed, reason, message);
    return end_round(Outcome::kRefused, reason, message);
  }

  bool follow_trial() {
    if (!settings_.trial) {
      // A user removed the trial while it ran.
      state_.trial.reset();
      watch_candidate();
      return true;
    }
    const Trial& trial = *settings_.trial;
    Readings readings;
    double base_time = 0, time = 0;
    for (const NodeReport& node : observation_.nodes) {
      if (!node.trial || node.trial->version != state_.candidate ||
          readings.size() == State::kTallyNodesMax)
        continue;
      if (node.trial->failed) return refuse("LoadFailed", node.trial->message);
      readings.emplace(text_of(node.name), bounded(node.trial->counters, Scores::kDrop));
      if (node.trial->microseconds) {
        base_time = std::max(base_time, node.trial->microseconds->base);
        time = std::max(time, node.trial->microseconds->candidate);
      }
    }
    if (trial.deadline.count() > 0) {
      if (now_ - state_.since >= trial.deadline && state_.phase == Phase::kRunning)
        return refuse("TrialTimeout", "the trial had too few answers");
      if (now_ - state_.since >= trial.deadline && readings.empty())
        return refuse("TrialTimeout", "the trial did not begin");
      due(state_.since + trial.deadline);
    }
    if (readings.empty()) return wait("waits for the first node to load " + state_.candidate);
    const Counters sum = growth(*state_.trial, readings);
    const std::int64_t requests = sum.answers + sum.failures;
    if (const std::string problem = error_problem(sum); !problem.empty())
      return refuse("TrialFailed", problem);
    if (requests < trial.answers) {
      keep(*state_.trial, readings, trial.answers);
      if (state_.phase == Phase::kRunning) return false;
      enter(Stage::kDeploy, Phase::kRunning, "Trial",
            "version " + state_.candidate + " is on trial (" + std::string(to_string(trial.mode)) +
                ", " + std::to_string(trial.answers) + " answers)");
      return true;
    }
    const std::optional<double> base_hard =
        sum.base_answers > 0 ? std::optional(part_of(sum.base_hard, sum.base_answers))
                             : state_.hard_share_before;
    if (const std::string problem = hard_problem(sum, base_hard); !problem.empty())
      return refuse("TrialFailed", problem);
    const double agreed = part_of(sum.agreed, sum.answers);
    if (trial.agreement_min && trial.mode == Trial::Mode::kShadow && agreed < *trial.agreement_min)
      return refuse("TrialFailed", "only " + percent_text(agreed) +
                                       " of the answers agree, and the least is " +
                                       percent_text(*trial.agreement_min));
    if (trial.latency_factor_max && base_time > 0 && time > base_time * *trial.latency_factor_max)
      return refuse("TrialFailed", "an answer takes " + number_text(time / base_time) +
                                       " times as long, and the limit is " +
                                       number_text(*trial.latency_factor_max));
    state_.trial.reset();
    watch_candidate();
    enter(Stage::kDeploy, Phase::kRunning, "TrialPassed",
          "the trial passed after " + std::to_string(requests) + " requests");
    return true;
  }

  /// "" if the errors are within the limit. Fails early: `answers` further good answers would not
  /// help.
  std::string error_problem(const Counters& sum) const {
    const Rollback& limits = settings_.rollback;
    const std::int64_t requests = std::max(sum.answers + sum.failures, limits.answers);
    if (static_cast<double>(sum.failures) <= limits.error_rate * static_cast<double>(requests))
      return "";
    return std::to_string(sum.failures) + " of " + std::to_string(sum.answers + sum.failures) +
           " requests failed, and the limit is " + percent_text(limits.error_rate);
  }

  /// `base` is the share of hard answers of the base, if it is known.
  std::string hard_problem(const Counters& sum, const std::optional<double>& base) const {
    const auto& rise = settings_.rollback.hard_share_rise;
    if (!rise || !base || sum.answers == 0) return "";
    const double hard = part_of(sum.hard, sum.answers);
    if (hard - *base <= *rise) return "";
    return percent_text(hard) + " of the answers are hard, and " + percent_text(*base) +
           " of those of version " + state_.base;
  }

  const NodeReport* node_named(const std::string& name) const {
    const auto at = std::find_if(observation_.nodes.begin(), observation_.nodes.end(),
                                 [&](const NodeReport& node) { return node.name == name; });
    return at == observation_.nodes.end() ? nullptr : &*at;
  }

  bool is_rolled(const std::string& name) const {
    return std::find(state_.rolled.begin(), state_.rolled.end(), name) != state_.rolled.end();
  }

  /// Whether a server that does not start had its time. The roll-out has waited for all nodes
  /// before the last one.
  bool is_given_up(const NodeReport& node) {
    if (node.name != state_.rolled.back()) return true;
    const WallTime end = state_.rolled_at + kServerWait;
    if (end <= now_) return true;
    due(end);
    return false;
  }

  /// Nodes that serve nothing come last: their servers may never start.
  std::vector<NodeReport>::const_iterator next_of_roll_out() const {
    const auto& nodes = observation_.nodes;
    const auto waits = [this](const NodeReport& node) {
      return node.connected && !node.name.empty() && !is_rolled(node.name);
    };
    const auto serves = std::find_if(nodes.begin(), nodes.end(), [&waits](const NodeReport& node) {
      return waits(node) && !node.serving.empty();
    });
    return serves != nodes.end() ? serves : std::find_if(nodes.begin(), nodes.end(), waits);
  }

  bool roll_out() {
    std::size_t serving = 0;
    for (const NodeReport& node : observation_.nodes) {
      if (!is_rolled(node.name)) continue;
      if (node.failed_version == state_.candidate)
        return refuse("LoadFailed", "node " + node.name + ": " + node.message);
      if (!node.connected) continue;  // the node follows when its link returns
      if (node.serving.empty() && is_given_up(node)) continue;
      if (node.serving != state_.candidate)
        return wait("waits for node " + node.name + " to serve " + state_.candidate);
      ++serving;
    }
    if (settings_.rollback.automatic && !state_.rolled.empty()) {
      const auto [reason, problem] = live_problem(state_.candidate);
      if (!reason.empty()) return refuse(reason, problem);
    }
    const auto next = next_of_roll_out();
    if (next == observation_.nodes.end() || state_.rolled.size() >= State::kRolledMax) {
      if (serving == 0) return wait("waits for a connected node that serves the model");
      return accept("all connected nodes serve version " + state_.candidate);
    }
    if (!state_.rolled.empty() && now_ - state_.rolled_at < settings_.rollout.pause) {
      due(state_.rolled_at + settings_.rollout.pause);
      return wait("pauses before node " + next->name);
    }
    state_.rolled.push_back(next->name);
    state_.rolled_at = now_;
    enter(Stage::kDeploy, Phase::kRunning, "RollOut",
          "node " + next->name + " gets version " + state_.candidate);
    return true;
  }

  bool accept(const std::string& message) {
    state_.previous.push_back(state_.serving);
    if (state_.previous.size() > State::kVersionsKept)
      state_.previous.erase(state_.previous.begin());
    state_.serving = {.version = state_.candidate, .round = state_.round};
    state_.serving_since = now_;
    state_.watched = true;
    forget_measurements();
    enter(Stage::kDeploy, Phase::kCompleted, "Serving", message);
    return end_round(Outcome::kAccepted, state_.verdict ? state_.verdict->reason : "GatePassed",
                     state_.verdict ? state_.verdict->message : message);
  }

  // ---- the way back ----

  /// The reason and the problem of the version that serves, or "".
  std::pair<std::string, std::string> live_problem(const std::string& version) {
    const Rollback& limits = settings_.rollback;
    std::int64_t crashes = 0;
    for (const NodeReport& node : observation_.nodes)
      if (node.serving == version) crashes += bounded_count(node.crashes);
    if (limits.crashes > 0 && crashes >= limits.crashes)
      return {"Crashes",
              "the server crashed " + std::to_string(crashes) + " times with version " + version};
    const Readings readings = readings_of(version, Scores::kDrop);
    const Counters sum = growth(state_.live, readings);
    if (std::string problem = error_problem(sum); !problem.empty()) return {"ErrorRate", problem};
    const bool full = sum.answers + sum.failures >= limits.answers;
    if (full) {
      if (std::string problem = hard_problem(sum, state_.hard_share_before); !problem.empty())
        return {"HardShare", problem};
      ++state_.live_windows;
      restart(state_.live, readings);
    } else if (!readings.empty()) {
      keep(state_.live, readings, limits.answers);
    }
    if (limits.condition && state_.live_windows > 0) {
      const ConditionResult result = check(*limits.condition, observation_.metrics);
      if (result.holds) return {"LiveMetric", result.reason};
    }
    return {};
  }

  void watch_serving_version() {
    if (!state_.watched || !settings_.rollback.automatic) return;
    const milliseconds probation = settings_.rollback.probation;
    if (probation.count() > 0) {
      if (now_ - state_.serving_since >= probation) {
        state_.watched = false;
        state_.live = {};
        return;
      }
      due(state_.serving_since + probation);
    }
    const auto [reason, problem] = live_problem(state_.serving.version);
    if (!reason.empty()) roll_back(reason, problem);
  }

  void roll_back_on_request() {
    const std::string request = text_of(observation_.rollback_request);
    if (request.empty() || request == state_.rollback_request) return;
    state_.rollback_request = request;
    if (candidate_serves(state_)) {
      refuse("ManualRollback", "a user stopped version " + state_.candidate);
      return;
    }
    roll_back("ManualRollback", "a user asked for the version before");
  }

  /// Returns to the version before, if there is one.
  void roll_back(const std::string& reason, const std::string& problem) {
    if (state_.previous.empty()) {
      state_.watched = false;
      const Transition transition{
          .round = state_.serving.round,
          .stage = Stage::kDeploy,
          .phase = Phase::kFailed,
          .at = now_,
          .reason = "NoVersionBefore",
          .message = text_of(problem + "; there is no version before " + state_.serving.version)};
      record(transition);
      return;
    }
    const ServedVersion bad = state_.serving;
    state_.serving = state_.previous.back();
    state_.previous.pop_back();
    state_.serving_since = now_;
    state_.watched = false;
    state_.live = {};
    state_.ended = now_;
    forget_measurements();
    out_.rolled_back = bad.version;
    const std::string message =
        text_of("version " + state_.serving.version + " serves again: " + problem);
    record({.round = bad.round,
            .stage = Stage::kDeploy,
            .phase = Phase::kFailed,
            .at = now_,
            .reason = reason,
            .message = message});
    for (RoundRecord& round : state_.rounds) {
      if (round.round != bad.round) continue;
      round.outcome = Outcome::kRefused;
      round.rolled_back = true;
      round.reason = reason;
      round.message = message;
    }
    if (bad.round > 0) mark_refused(bad.round);
    if (state_.stage == Stage::kTrain && state_.phase == Phase::kWaiting) return;
    // The round in progress learned from the version that just failed.
    const std::string why = "the base " + bad.version + " was rolled back";
    served_ = state_.trial.has_value() || !state_.rolled.empty();
    enter(state_.stage, Phase::kFailed, kBaseRolledBack, why);
    end_round(Outcome::kFailed, kBaseRolledBack, why);
    // Nothing is wrong with the next round.
    state_.failed_in_a_row = 0;
  }

  void mark_refused(std::int64_t round) {
    if (std::find(state_.refused.begin(), state_.refused.end(), round) == state_.refused.end())
      state_.refused.push_back(round);
  }

  bool end_round(Outcome outcome, std::string_view reason, const std::string& message) {
    RoundRecord round{.round = state_.round,
                      .outcome = outcome,
                      .rolled_back = served_,
                      .reason = std::string(reason),
                      .message = text_of(message),
                      .trigger = state_.trigger,
                      .base = state_.base,
                      .version = state_.candidate,
                      .digest = state_.digest,
                      .samples = state_.selected,
                      .attempts = state_.attempts,
                      .base_value = {},
                      .value = {},
                      .gain = {},
                      .probability = {},
                      .forgetting = {},
                      .started = state_.started,
                      .ended = now_};
    if (const auto& verdict = state_.verdict) {
      round.base_value = verdict->base;
      round.value = verdict->candidate;
      round.gain = verdict->gain;
      round.probability = verdict->probability;
      round.forgetting = verdict->forgetting;
    }
    served_ = false;
    if (outcome == Outcome::kFailed) {
      ++state_.failed_in_a_row;
    } else {
      state_.failed_in_a_row = 0;
      state_.used += state_.selected;
      state_.consumed.push_back(state_.round);
      if (outcome == Outcome::kRefused) mark_refused(state_.round);
    }
    state_.ended = now_;
    state_.attempt = 0;
    state_.candidate.clear();
    state_.digest.clear();
    state_.rolled.clear();
    state_.trial.reset();
    state_.rounds.push_back(round);
    if (state_.rounds.size() > State::kRoundsKept) state_.rounds.erase(state_.rounds.begin());
    out_.ended = std::move(round);
    enter(Stage::kTrain, Phase::kWaiting, to_string(outcome),
          "round " + std::to_string(state_.round) +
              (outcome == Outcome::kFailed ? " failed: "
                                           : " was " + lower(to_string(outcome)) + ": ") +
              message);
    return true;
  }

  const Settings& settings_;
  const State& input_;
  const Observation& observation_;
  State state_;
  Advance out_;
  WallTime now_;
  std::string_view limit_;  // of the last start_allowed_at()
  bool served_ = false;     // the candidate of the round that ends answered requests
};

}  // namespace

Advance advance(const Settings& settings, const State& state, const Observation& observation) {
  return Machine(settings, state, observation).run();
}

std::optional<std::int64_t> new_samples(const State& state, const Observation& observation) {
  if (!observation.samples) return std::nullopt;
  return std::max<std::int64_t>(0, bounded_count(*observation.samples) - state.used);
}

bool candidate_serves(const State& state) {
  return state.stage == Stage::kDeploy && (state.trial.has_value() || !state.rolled.empty());
}

Wanted wanted_of(const Settings& settings, const State& state) {
  Wanted out;
  out.serving = state.serving.version;
  const bool runs = state.phase == Phase::kStarting || state.phase == Phase::kRunning;
  if (!runs) return out;
  if (state.stage != Stage::kDeploy) {
    out.worker = Assignment{.stage = state.stage,
                            .round = state.round,
                            .attempt = state.attempt,
                            .base = state.base,
                            .version = state.candidate,
                            .settled = state.settled,
                            .consumed = state.consumed,
                            .refused = state.refused};
  } else if (state.trial) {
    if (settings.trial)
      out.trial = Wanted::OnTrial{
          .version = state.candidate, .mode = settings.trial->mode, .share = settings.trial->share};
  } else if (!state.rolled.empty()) {
    out.rollout = state.candidate;
    out.rolled = state.rolled;
  }
  return out;
}

const std::string& Wanted::version_for(std::string_view node) const {
  const bool is_rolled = std::find(rolled.begin(), rolled.end(), node) != rolled.end();
  return is_rolled ? rollout : serving;
}

}  // namespace varda::incremental
