#include "incremental/testing/round_schedule.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "incremental/round_machine.h"

namespace varda::incremental::schedule {
namespace {

using codec::Json;
using std::chrono::milliseconds;
using std::chrono::seconds;

enum class Quality : std::uint8_t { kGood, kPoisoned, kBadLive, kDoesNotLoad };

constexpr std::int64_t kInitialSamples = 8;
constexpr int kQuietSteps = 600;

/// The contract of a trainer with its ledger, as the design demands it.
struct Trainer {
  // On the disk.
  std::map<std::int64_t, std::int64_t> ledger;  // round by sample
  std::int64_t round = 0, attempt = 0;          // of the newest assignment
  Stage stage = Stage::kTrain;
  std::shared_ptr<WorkerReport> report;  // of that assignment; a new object for each change
  // In memory.
  bool runs = false;
};

struct Server {
  std::string loaded, failed_version;
  Counters counters;
  std::int64_t crashes = 0;
  std::optional<TrialReport> trial;
  std::int64_t epoch = 0;
};

struct Node {
  std::string name;
  bool linked = true;
  bool disk_full = false;
  enum class Start : std::uint8_t { kWorks, kFails, kNever } start = Start::kWorks;
  Wanted wanted;  // on the disk
  Server server;
};

/// Objects in the API server, or an operator's cache of them.
struct Objects {
  std::shared_ptr<const State> status = std::make_shared<State>();
  std::uint64_t revision = 0;
  Wanted wanted;
  std::vector<NodeReport> nodes;
  std::shared_ptr<const WorkerReport> worker;  // null: none
  std::int64_t samples = 0;
};

class World {
 public:
  explicit World(std::uint64_t seed) : rng_(seeded_rng(seed)) {
    edit_spec();
    const std::size_t nodes = 1 + below(3);
    for (std::size_t i = 0; i < nodes; ++i) {
      Node node;
      node.name = "edge" + std::to_string(i);
      node.server.loaded = "1";
      nodes_.push_back(std::move(node));
      api_.nodes.push_back({.name = nodes_.back().name});
    }
    // The trainer's node also tries candidates, and always starts in the end.
    if (nodes > 1 && chance(10)) nodes_.back().start = Node::Start::kNever;
    samples_ = kInitialSamples;
    faults_ = below(5);
    api_.samples = samples_;
    cache_ = api_;
    passed_.insert("1");
  }

  Result run() {
    const std::size_t steps = 60 + below(120);
    for (std::size_t i = 0; i < steps && problem_.empty(); ++i) random_step();
    if (problem_.empty()) quiet_time();
    if (!problem_.empty())
      result_.problem = problem_ + ": " + codec::write_json(to_json(*api_.status));
    result_.samples = static_cast<std::size_t>(samples_);
    return result_;
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return rng_->below(bound); }
  bool chance(std::uint64_t percent) { return below(100) < percent; }
  void broken(const std::string& promise) {
    if (problem_.empty()) problem_ = promise;
  }
  Node& trainers_node() { return nodes_.front(); }

  // ---- time, users ----

  WallTime clock() const { return WallTime(std::chrono::hours(24 * 365 * 50)) + now_ + skew_; }

  void edit_spec() {
    Settings settings;
    const std::uint64_t kind = below(10);
    if (kind < 7) settings.trigger.rule.samples = 1 + static_cast<std::int64_t>(below(12));
    if (kind == 7) settings.trigger.rule.hard_share = 0.3;
    if (kind == 8) settings.trigger.rule.drift = DriftRule{.threshold = 0.1};
    if (kind == 9) settings.trigger.rule.drift = DriftRule{DriftMethod::kPageHinkley, 0.05};
    settings.trigger.window = 20 + static_cast<std::int64_t>(below(60));
    if (chance(30)) settings.trigger.cooldown = seconds(below(600));
    if (chance(30)) settings.trigger.quota_per_day = 1 + static_cast<std::int64_t>(below(4));
    settings.trigger.manual = chance(10);
    settings.retry.attempts = 1 + static_cast<std::int64_t>(below(3));
    settings.retry.backoff = seconds(below(20));
    if (chance(30)) settings.retry.deadline = seconds(60 + below(600));
    settings.separate_evaluation = chance(40);
    settings.gate = Gate{.minimum_gain = 0.01};
    if (chance(50)) {
      settings.trial = Trial{.mode = chance(50) ? Trial::Mode::kShadow : Trial::Mode::kCanary,
                             .answers = 20 + static_cast<std::int64_t>(below(80))};
      if (chance(20)) settings.trial->deadline = seconds(30 + below(300));
    }
    settings.rollback.answers = 10 + static_cast<std::int64_t>(below(40));
    if (chance(50)) settings.rollback.probation = milliseconds(0);
    if (chance(30)) settings.rollout.pause = seconds(below(60));
    settings_ = settings;
  }

  void random_step() {
    now_ += milliseconds(below(20'000));
    switch (below(22)) {
      case 0:
        restart_operator();
        break;
      case 1:
      case 2:
        samples_ += static_cast<std::int64_t>(below(6));
        api_.samples = samples_;
        break;
      case 3:
        if (chance(30)) edit_spec();
        if (chance(30))
          skew_ += milliseconds(static_cast<std::int64_t>(below(7'200'000)) - 3'600'000);
        if (chance(10)) now_ += std::chrono::hours(25);
        break;
      case 4:
        if (chance(30)) train_request_ = "train " + std::to_string(below(1000));
        if (chance(15)) rollback_request_ = "back " + std::to_string(below(1000));
        break;
      case 5: {
        Node& node = any_node();
        node.linked = node.linked ? !chance(10 + 5 * faults_) : chance(60);
        break;
      }
      case 6: {
        Node& node = any_node();
        node.disk_full = chance(10 * faults_);
        if (node.start != Node::Start::kNever)
          node.start = chance(5 * faults_) ? Node::Start::kFails : Node::Start::kWorks;
        break;
      }
      case 7:
        kill_something();
        break;
      case 8:
      case 9:
      case 10:
        step_worker();
        break;
      case 11:
      case 12:
        step_server(any_node());
        break;
      case 13:
      case 14:
        pull(any_node());
        break;
      case 15:
      case 16:
        push(any_node());
        break;
      default:
        if (chance(80)) refresh();
        if (chance(20)) old_leader_ = cache_;
        reconcile();
        if (chance(10)) {
          // An operator that lost its lease, and does not know it yet.
          std::swap(cache_, old_leader_);
          reconcile();
          std::swap(cache_, old_leader_);
        }
    }
  }

  Node& any_node() { return nodes_[below(nodes_.size())]; }

  void kill_something() {
    if (chance(50)) {
      trainer_.runs = false;
      return;
    }
    Server& server = any_node().server;
    restart_server(server);
    if (server.trial) server.trial->counters = {.since = std::to_string(server.epoch)};
  }

  static void restart_server(Server& server) {
    ++server.epoch;
    server.counters = {.since = std::to_string(server.epoch)};
  }

  /// Without faults until nothing changes; then all samples of a last round must count once.
  void quiet_time() {
    quiet_ = true;
    settings_.trigger = {};
    settings_.trigger.manual = true;
    settings_.retry = {};
    settings_.rollback.probation = milliseconds(0);
    if (settings_.trial) settings_.trial->deadline = milliseconds(0);
    skew_ = milliseconds(0);
    for (Node& node : nodes_) {
      node.linked = true;
      node.disk_full = false;
      if (node.start == Node::Start::kFails) node.start = Node::Start::kWorks;
    }
    restart_operator();
    if (!settle("the round does not end")) return;
    for (int i = 0; i < 40; ++i) quiet_step();  // a bad version goes back now
    if (!settle("a rollback does not end")) return;
    samples_ += 3;
    api_.samples = samples_;
    train_request_ = "the last one";
    const std::int64_t before = state().round;
    for (int i = 0; i < kQuietSteps && state().round == before; ++i) quiet_step();
    if (!settle("the last round does not end")) return;
    const State& last = state();
    if (last.round != before + 1 || last.rounds.empty() ||
        last.rounds.back().outcome != Outcome::kAccepted)
      return broken("the last round is not accepted");
    for (std::int64_t sample = 0; sample < samples_; ++sample)
      if (!used_in_.contains(sample))
        return broken("sample " + std::to_string(sample) + " is lost");
    for (int i = 0; i < 20; ++i) quiet_step();
    for (const Node& node : nodes_)
      if (node.start != Node::Start::kNever && node.server.loaded != state().serving.version)
        return broken("node " + node.name + " serves " + node.server.loaded);
    // An operator writes nothing while nothing changes.
    const std::uint64_t revision = api_.revision;
    for (int i = 0; i < 5; ++i) reconcile();
    if (api_.revision != revision) broken("the operator writes without a reason");
  }

  const State& state() const { return *api_.status; }

  bool settle(const std::string& otherwise) {
    for (int i = 0; i < kQuietSteps && problem_.empty(); ++i) {
      quiet_step();
      const State& now = state();
      if (now.stage == Stage::kTrain && now.phase == Phase::kWaiting) return true;
    }
    broken(otherwise);
    return false;
  }

  void quiet_step() {
    now_ += seconds(30);
    refresh();
    reconcile();
    for (Node& node : nodes_) {
      pull(node);
      step_server(node);
    }
    step_worker();
    for (Node& node : nodes_) push(node);
  }

  // ---- the operator ----

  void restart_operator() {
    ++result_.restarts;
    cache_ = api_;
  }

  void refresh() {
    if (quiet_ || chance(60)) {
      cache_ = api_;
      return;
    }
    // Watches of different objects are not in step.
    if (chance(50)) cache_.nodes = api_.nodes;
    if (chance(50)) cache_.worker = api_.worker;
    if (chance(50)) cache_.samples = api_.samples;
  }

  Observation observe() {
    Observation out;
    out.now = clock();
    out.samples = cache_.samples;
    out.initial_version = "1";
    for (const auto& [version, quality] : qualities_) out.versions.push_back(version);
    if (!quiet_ && chance(30)) out.versions.clear();
    out.nodes = cache_.nodes;
    if (cache_.worker) out.workers = {*cache_.worker};
    // Reports of the past arrive again.
    if (!quiet_ && !reports_.empty() && chance(30))
      out.workers.insert(out.workers.begin(), *reports_[below(reports_.size())]);
    out.train_request = train_request_;
    out.rollback_request = rollback_request_;
    return out;
  }

  void reconcile() {
    const auto before = cache_.status;
    Advance next = advance(settings_, *before, observe());
    if (!quiet_ && chance(2 * faults_)) return restart_operator();
    if (next.changed) {
      if (cache_.revision != api_.revision) {
        ++result_.conflicts;
        cache_ = api_;
        return;
      }
      persist(*before, std::move(next.state));
    }
    if (!quiet_ && chance(2 * faults_)) return restart_operator();
    // Also an operator with a stale cache writes the work lists.
    api_.wanted = wanted_of(settings_, *cache_.status);
  }

  /// The state is written and read as text, as an operator does.
  State through_text(const State& state) {
    const std::string text = codec::write_json(to_json(state));
    if (text.size() > kStateBytesMax) broken("the state is too large");
    auto parsed = parse_state(codec::parse_json(text).value());
    if (!parsed.ok()) broken("the state does not read back");
    return parsed.ok() ? std::move(*parsed) : State{};
  }

  void persist(const State& before, State next) {
    // Text takes most of the time of a schedule.
    if (chance(5) && through_text(next) != next) broken("the state reads back differently");
    api_.status = std::make_shared<State>(std::move(next));
    ++api_.revision;
    cache_.status = api_.status;
    cache_.revision = api_.revision;
    const State& after = *api_.status;
    if (after.round < before.round || after.round > before.round + 1)
      broken("a round begins before the last one ended");
    if (after.stage == Stage::kTrain && after.phase == Phase::kStarting &&
        (before.stage != Stage::kTrain || before.attempt != after.attempt ||
         before.round != after.round)) {
      if (!versions_.insert(after.candidate).second) broken("two attempts have one version");
      if (after.base != after.serving.version) broken("the base does not serve");
    }
    for (const RoundRecord& round : after.rounds) check_round(round);
    if (after.serving.version != before.serving.version && !passed_.contains(after.serving.version))
      broken("version " + after.serving.version + " serves without the gate");
    check_samples(after);
  }

  void check_round(const RoundRecord& round) {
    const auto [at, added] = outcomes_.emplace(round.round, round);
    if (added) {
      if (round.round != static_cast<std::int64_t>(outcomes_.size()))
        broken("round " + std::to_string(round.round) + " ended out of order");
      (round.outcome == Outcome::kAccepted  ? result_.accepted
       : round.outcome == Outcome::kRefused ? result_.refused
                                            : result_.failed) += 1;
      if (round.outcome != Outcome::kFailed) consume(round);
      return;
    }
    RoundRecord& known = at->second;
    if (known == round) return;
    const bool back = known.outcome == Outcome::kAccepted && round.rolled_back &&
                      round.outcome == Outcome::kRefused;
    if (!back) broken("round " + std::to_string(round.round) + " ended twice");
    ++result_.rolled_back;
    known = round;
  }

  void consume(const RoundRecord& round) {
    const auto trained = trained_on_.find(round.version);
    if (trained == trained_on_.end()) return broken("round ended without a candidate");
    if (round.samples != static_cast<std::int64_t>(trained->second.size()))
      broken("round " + std::to_string(round.round) + " counts other samples than it used");
    for (const std::int64_t sample : trained->second)
      if (!used_in_.emplace(sample, round.round).second)
        broken("sample " + std::to_string(sample) + " counts in two rounds");
  }

  void check_samples(const State& state) {
    if (state.used != static_cast<std::int64_t>(used_in_.size()))
      broken("the state counts " + std::to_string(state.used) + " used samples, not " +
             std::to_string(used_in_.size()));
    if (state.consumed.size() + state.refused.size() > 2 * State::kVersionsKept + 4)
      broken("the lists of rounds grow");
  }

  // ---- agents ----

  void pull(Node& node) {
    if (node.linked) node.wanted = api_.wanted;
  }

  void push(Node& node) {
    NodeReport& report = api_.nodes[static_cast<std::size_t>(&node - nodes_.data())];
    report.connected = node.linked;  // by the gateway
    if (!node.linked) return;
    const Server& server = node.server;
    report.serving = node.start == Node::Start::kWorks ? server.loaded : "";
    report.failed_version = server.failed_version;
    report.message = server.failed_version.empty() ? "" : "no such operator";
    report.counters = server.counters;
    report.crashes = server.crashes;
    report.trial = server.trial;
    if (&node == &trainers_node() && trainer_.report && trainer_.report != api_.worker) {
      api_.worker = trainer_.report;
      reports_.push_back(trainer_.report);
    }
  }

  // ---- the worker ----

  void step_worker() {
    const auto& wanted = trainers_node().wanted.worker;
    if (!wanted) {
      trainer_.runs = false;
      return;
    }
    const auto key = std::tuple(wanted->round, wanted->stage, wanted->attempt);
    const auto last = std::tuple(trainer_.round, trainer_.stage, trainer_.attempt);
    if (key != last) trainer_.runs = false;
    // An assignment from the past: a stale operator wrote the work list.
    if (key < last) return;
    if (key == last && trainer_.report && trainer_.report->phase != Phase::kRunning) return;
    if (!trainer_.runs) return begin_work(*wanted, key == last);
    end_work(*wanted);
  }

  void begin_work(const Assignment& assignment, bool again) {
    if (trainers_node().disk_full) return report_failure(assignment, "the disk is full");
    trainer_.round = assignment.round;
    trainer_.stage = assignment.stage;
    trainer_.attempt = assignment.attempt;
    if (assignment.stage == Stage::kTrain) {
      const std::set<std::int64_t> consumed(assignment.consumed.begin(), assignment.consumed.end());
      std::erase_if(trainer_.ledger, [&](const auto& entry) {
        return entry.second > assignment.settled && !consumed.contains(entry.second) &&
               !(again && entry.second == assignment.round);
      });
      const bool selected =
          std::any_of(trainer_.ledger.begin(), trainer_.ledger.end(),
                      [&](const auto& entry) { return entry.second == assignment.round; });
      for (std::int64_t sample = 0; !selected && sample < samples_; ++sample)
        trainer_.ledger.emplace(sample, assignment.round);
    }
    trainer_.runs = true;
    set_report(assignment, Phase::kRunning);
  }

  WorkerReport& set_report(const Assignment& assignment, Phase phase) {
    trainer_.report = std::make_shared<WorkerReport>(WorkerReport{.stage = assignment.stage,
                                                                  .round = assignment.round,
                                                                  .attempt = assignment.attempt,
                                                                  .phase = phase});
    return *trainer_.report;
  }

  void report_failure(const Assignment& assignment, const std::string& message) {
    trainer_.round = assignment.round;
    trainer_.stage = assignment.stage;
    trainer_.attempt = assignment.attempt;
    trainer_.runs = false;
    set_report(assignment, Phase::kFailed).message = message;
  }

  void end_work(const Assignment& assignment) {
    if (!quiet_ && chance(30)) return;  // still at work
    if (!quiet_ && chance(5 * faults_)) {
      report_failure(assignment, "killed");
      trainer_.report->permanent = chance(20);
      return;
    }
    trainer_.runs = false;
    const std::string& version = assignment.version;
    if (assignment.stage == Stage::kTrain) {
      qualities_.emplace(version, quality());
      std::set<std::int64_t>& samples = trained_on_[version];
      for (const auto& [sample, round] : trainer_.ledger)
        if (round == assignment.round) samples.insert(sample);
    }
    WorkerReport& report = set_report(assignment, Phase::kCompleted);
    report.version = version;
    report.comparison = comparison(assignment, qualities_[version]);
    if (!quiet_ && chance(3)) report.comparison = Json::object({{"slices", "none"}});
    const auto parsed = parse_comparison(report.comparison);
    if (parsed.ok() && judge(settings_.gate, {}, *parsed).passed) passed_.insert(version);
  }

  Quality quality() {
    if (quiet_) return Quality::kGood;
    const std::uint64_t dice = below(100);
    if (dice < 50) return Quality::kGood;
    if (dice < 70) return Quality::kPoisoned;
    return dice < 85 ? Quality::kBadLive : Quality::kDoesNotLoad;
  }

  Json comparison(const Assignment& assignment, Quality quality) const {
    const bool good = quality != Quality::kPoisoned;
    const auto selected = trained_on_.find(assignment.version);
    const auto samples =
        selected == trained_on_.end() ? 0 : static_cast<std::int64_t>(selected->second.size());
    Slice slice{.name = std::string(kFrozenSlice),
                .samples = 100,
                .base_right = 60,
                .candidate_right = good ? 80 : 40,
                .only_base = good ? 0 : 20,
                .only_candidate = good ? 20 : 0};
    Comparison out{.round = assignment.round,
                   .selected = Selected{.train = samples, .evaluate = 0},
                   .slices = {slice},
                   .base_metrics = Json::object(),
                   .candidate_metrics = Json::object()};
    return to_json(out);
  }

  // ---- servers ----

  void step_server(Node& node) {
    if (node.start != Node::Start::kWorks) return;
    Server& server = node.server;
    const std::string& target = node.wanted.version_for(node.name);
    if (!target.empty() && target != server.loaded && !node.disk_full) load(server, target);
    answer(server.counters, server.loaded);
    if (quality_of(server.loaded) == Quality::kBadLive && !quiet_ && chance(20)) {
      ++server.crashes;
      restart_server(server);
    }
    const auto& trial = node.wanted.trial;
    if (!trial || &node != &trainers_node()) {
      server.trial.reset();
      return;
    }
    if (!server.trial || server.trial->version != trial->version)
      server.trial = TrialReport{.version = trial->version,
                                 .counters = {.since = std::to_string(server.epoch)}};
    server.trial->failed = quality_of(trial->version) == Quality::kDoesNotLoad;
    if (!server.trial->failed) answer(server.trial->counters, trial->version);
  }

  void load(Server& server, const std::string& target) {
    // The rolled nodes get only versions that passed the gate.
    if (!passed_.contains(target)) broken("a node gets " + target + " without the gate");
    if (quality_of(target) == Quality::kDoesNotLoad) {
      server.failed_version = target;
      return;
    }
    server.failed_version.clear();
    server.loaded = target;
    server.crashes = 0;
    restart_server(server);
  }

  Quality quality_of(const std::string& version) const {
    const auto at = qualities_.find(version);
    return at == qualities_.end() ? Quality::kGood : at->second;
  }

  void answer(Counters& counters, const std::string& version) {
    const auto requests = static_cast<std::int64_t>(quiet_ ? 20 : below(20));
    // Some bad versions pass a trial and a roll-out.
    const bool late = !version.empty() && version.back() % 2 == 0;
    const bool bad = quality_of(version) == Quality::kBadLive && (!late || counters.answers > 100);
    const std::int64_t answers = bad ? requests / 2 : requests;
    counters.answers += answers;
    counters.failures += requests - answers;
    counters.scores.resize(4);
    for (std::int64_t i = 0; i < answers; ++i) {
      const std::uint64_t bin = below(4);
      ++counters.scores[bin];
      counters.hard += bin == 0 ? 1 : 0;
    }
  }

  const std::unique_ptr<Rng> rng_;
  std::uint64_t faults_ = 0;
  bool quiet_ = false;
  Settings settings_;
  milliseconds now_{0}, skew_{0};
  std::string train_request_, rollback_request_;
  std::int64_t samples_ = 0;

  Objects api_, cache_, old_leader_;
  std::vector<Node> nodes_;
  Trainer trainer_;
  std::vector<std::shared_ptr<WorkerReport>> reports_;  // all that were sent

  std::map<std::string, Quality> qualities_;                  // by version
  std::map<std::string, std::set<std::int64_t>> trained_on_;  // samples by version
  std::set<std::string> versions_, passed_;                   // assigned; passed the gate
  std::map<std::int64_t, RoundRecord> outcomes_;
  std::map<std::int64_t, std::int64_t> used_in_;  // round by sample
  std::string problem_;
  Result result_;
};

}  // namespace

Result run(std::uint64_t seed) { return World(seed).run(); }

}  // namespace varda::incremental::schedule
