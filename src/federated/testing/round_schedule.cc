#include "federated/testing/round_schedule.h"

#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <tuple>

#include "base/rng.h"
#include "base/text.h"
#include "codec/digest.h"
#include "federated/round_machine.h"

namespace varda::federated::schedule {
namespace {

using Milliseconds = std::int64_t;

std::string digest_of(const std::string& text) { return codec::Sha256::of(text).hex(); }

using Stored = RoundMachine::Stored;

/// The order of names in a directory.
struct ByName {
  bool operator()(const Stored& a, const Stored& b) const {
    return std::tie(a.round, a.update.client, a.update.digest) <
           std::tie(b.round, b.update.client, b.update.digest);
  }
};

class World {
 public:
  explicit World(std::uint64_t seed) : rng_(seeded_rng(seed)) {
    settings_.mode = rng_->below(3) == 0 ? Mode::kAsync : Mode::kSync;
    settings_.rounds = 1 + static_cast<std::int64_t>(rng_->below(4));
    clients_count_ = 1 + rng_->below(6);
    settings_.minimum_clients = 1 + static_cast<std::int64_t>(rng_->below(clients_count_));
    settings_.quorum = rng_->below(4) == 0 ? 1 + static_cast<double>(rng_->below(clients_count_))
                                           : 0.1 + 0.9 * rng_->unit();
    if (rng_->below(3) == 0) settings_.fraction = 0.2 + 0.8 * rng_->unit();
    if (settings_.fraction == 1 && rng_->below(3) == 0)
      settings_.clients_per_round = 1 + static_cast<std::int64_t>(rng_->below(clients_count_));
    settings_.late = rng_->below(2) == 0 ? Late::kFold : Late::kDrop;
    settings_.evaluation.every = static_cast<std::int64_t>(rng_->below(3));
    settings_.buffer_size = 1 + static_cast<std::int64_t>(rng_->below(4));
    settings_.staleness_max = static_cast<std::int64_t>(rng_->below(4));
    settings_.round_deadline = std::chrono::milliseconds(1000);
    settings_.seed = seed;
    secure_ = settings_.mode == Mode::kSync && rng_->below(3) == 0;
    if (secure_) settings_.late = Late::kDrop;
    loss_ = rng_->below(4) == 0 ? 0 : rng_->below(30);
    hostile_ = rng_->below(3) == 0 ? rng_->below(clients_count_) : clients_count_;
    start();
    for (std::size_t i = 0; i < clients_count_; ++i)
      after(rng_->below(300), [this, i] { poll(i); });
    for (std::size_t i = rng_->below(6); i > 0; --i)
      after(rng_->below(4000), [this] { restart_server(); });
    for (std::size_t i = rng_->below(4); i > 0; --i) {
      const std::size_t client = rng_->below(clients_count_);
      const Milliseconds from = static_cast<Milliseconds>(rng_->below(4000));
      const Milliseconds length = static_cast<Milliseconds>(rng_->below(3000));
      after(from, [this, client] { cut_.insert(client); });
      after(from + length, [this, client] { cut_.erase(client); });
    }
    for (std::size_t i = rng_->below(3); i > 0; --i)
      after(rng_->below(4000),
            [this] { skew_ += static_cast<Milliseconds>(rng_->below(4000)) - 2000; });
    tick();
  }

  /// "", or the broken promise.
  std::string run() {
    std::size_t steps = 0;
    while (!events_.empty() && error_.empty() && !done_) {
      if (++steps > 20'000) return "the job does not end: " + describe();
      auto event = events_.top();
      events_.pop();
      now_ = event.at;
      event.act();
    }
    if (!error_.empty()) return error_ + ": " + describe();
    if (!done_) return "nothing is left to happen: " + describe();
    return check_accepted();
  }

  std::size_t restarts() const { return restarts_; }
  std::size_t folded() const { return folded_; }
  std::size_t repeats() const { return voided_.size(); }
  bool failed() const { return machine_->failed(); }

 private:
  struct Event {
    Milliseconds at = 0;
    std::uint64_t number = 0;
    std::function<void()> act;
    friend bool operator<(const Event& a, const Event& b) {
      return std::tie(a.at, a.number) > std::tie(b.at, b.number);
    }
  };
  struct Client {
    std::string id;     // of the last task
    bool done = false;  // saw the end
    std::uint64_t polls = 0;
  };

  template <std::integral Delay>
  void after(Delay delay, std::function<void()> act) {
    events_.push({now_ + static_cast<Milliseconds>(delay), ++numbers_, std::move(act)});
  }
  bool lost(std::size_t client) { return cut_.contains(client) || rng_->below(100) < loss_; }
  SteadyTime clock() const {
    return SteadyTime(std::chrono::hours(10)) + std::chrono::milliseconds(now_ + skew_);
  }
  static std::string name(std::size_t client) { return "c" + std::to_string(client); }
  RoundMachine::Options options() const {
    return {.settings = settings_,
            .job = "job",
            .model = digest_of("model 1"),
            .clients_expected = static_cast<std::int64_t>(clients_count_),
            .settle = std::chrono::milliseconds(200)};
  }
  std::string describe() const { return std::string(to_string(machine_->phase())) + " " + saved_; }

  // ---- the server ----

  void start() {
    if (saved_.empty()) {
      machine_.emplace(options(), clock());
    } else {
      // The masks of a secure round are lost with the process, and so are its updates.
      if (secure_) disk_.clear();
      auto restored = RoundMachine::restore(options(), codec::parse_json(saved_).value(),
                                            {disk_.begin(), disk_.end()}, clock());
      if (!restored.ok()) {
        error_ = "the saved state does not read back";
        return;
      }
      machine_ = std::move(*restored);
      note_task();
      if (secure_ && !apply(machine_->repeat_round(RoundMachine::RepeatCause::kRestarted,
                                                   "restarted", clock())))
        return;
      if (!apply(machine_->time_passed(clock()))) return;
    }
    for (std::size_t i = 0; i < clients_count_; ++i) seen_[i] = now_;
    if (machine_->phase() == RoundMachine::Phase::kAggregating) aggregate_soon();
    if (machine_->phase() == RoundMachine::Phase::kFinished) done_ = true;
  }

  void restart_server() {
    if (done_) return;
    ++restarts_;
    ++life_;
    start();
  }

  void note_task() {
    task_ = machine_->open_task();
    task_round_ = machine_->round();
  }
  /// Updates of a repeated round do not count.
  void note_repetition() {
    const auto phase = machine_->phase();
    const bool begins_again =
        machine_->round() == task_round_ &&
        (phase == RoundMachine::Phase::kWaiting || phase == RoundMachine::Phase::kTraining ||
         machine_->reason() == "SecureAggregationFailed" || machine_->reason() == "TooFewClients");
    if (secure_ && task_ && begins_again && machine_->open_task() != task_) {
      voided_.insert(*task_);
      std::erase_if(disk_, [&](const Stored& one) { return !machine_->in_use(one); });
    }
    note_task();
  }

  /// A crash before the save, or after it: false.
  bool apply(const Step& step) {
    note_repetition();
    if (crash_here()) return false;
    if (step.save) saved_ = codec::write_json(machine_->to_json(clock()));
    if (crash_here()) return false;
    if (step.aggregate) aggregate_soon();
    if (step.finished) done_ = true;
    return true;
  }

  bool crash_here() {
    if (crashes_left_ == 0 || rng_->below(40) != 0) return false;
    --crashes_left_;
    const std::uint64_t life = life_;
    after(rng_->below(300), [this, life] {
      if (life == life_) restart_server();
    });
    dead_life_ = life_;
    return true;
  }
  bool dead() const { return dead_life_ == life_; }

  void aggregate_soon() {
    after(rng_->below(400), [this, life = life_] {
      if (life == life_ && !dead()) aggregate();
    });
  }

  void aggregate() {
    if (machine_->phase() != RoundMachine::Phase::kAggregating) return;
    const std::int64_t round = machine_->round();
    std::string content = machine_->model();
    std::set<std::string> clients;
    std::set<std::string> set;
    std::map<std::string, std::string> quarantined;
    for (const AcceptedUpdate& update : machine_->updates()) {
      if (!clients.insert(update.client).second) error_ = "two updates of one client in a round";
      content += "/" + update.client + update.digest + std::to_string(update.trained_on);
      if (bad_.contains(update.digest)) quarantined[update.client] = "norm";
      set.insert(update.client + "/" + std::to_string(update.trained_on));
    }
    if (static_cast<std::int64_t>(set.size()) < machine_->quorum())
      error_ = "a round closed below the quorum";
    if (secure_) results_.erase(round);  // a round is repeated after a crash in its aggregation
    if (const auto [at, added] = results_.emplace(round, content); !added && at->second != content)
      error_ = "two aggregations of round " + std::to_string(round) + " differ";
    for (const std::string& one : set) {
      const auto [at, added] = folded_into_.emplace(one, round);
      if (!added && at->second != round) error_ = one + " counts in two rounds";
    }
    if (!apply(machine_->aggregated(digest_of(content), quarantined, clock()))) return;
    for (auto at = disk_.begin(); at != disk_.end();)
      at = !machine_->in_use(*at) && !crash_here() ? disk_.erase(at) : std::next(at);
  }

  void tick() {
    after(80, [this] {
      if (done_) return;
      if (!dead()) {
        for (std::size_t i = 0; i < clients_count_; ++i)
          if (now_ - seen_[i] > 1500 && !dead()) apply(machine_->left(name(i), clock()));
        if (!dead()) apply(machine_->time_passed(clock()));
        if (!dead() && secure_) exchange_keys();
      }
      tick();
    });
  }

  /// The exchange leaves some clients out, or fails.
  void exchange_keys() {
    if (rng_->below(4) == 0) {
      std::set<std::string> clients = machine_->working();
      std::erase_if(clients, [&](const std::string&) { return rng_->below(6) == 0; });
      if (rng_->below(4) == 0 && !clients.empty() &&
          !apply(machine_->refuse_keys({{*clients.begin(), "bad_shares"}}, clock())))
        return;
      if (static_cast<std::int64_t>(clients.size()) >= machine_->quorum() &&
          !apply(machine_->fix_clients(clients, clock())))
        return;
    }
    if (rng_->below(20) == 0 &&
        !apply(machine_->withdrew(name(rng_->below(clients_count_)), clock())))
      return;
    if (rng_->below(40) == 0)
      apply(machine_->repeat_round(RoundMachine::RepeatCause::kFailed, "no shares", clock()));
  }

  void serve_poll(std::size_t client) {
    if (dead() || done_) return;
    seen_[client] = now_;
    if (!apply(machine_->joined(name(client), clock()))) return;
    const auto task = machine_->task_for(name(client));
    if (!task || task->id == clients_[client].id || lost(client)) return;
    after(rng_->below(50), [this, client, task = *task] { got_task(client, task); });
  }

  void serve_update(std::size_t client, const Task& task, const std::string& digest,
                    const std::function<void(Verdict)>& answer) {
    if (dead() || done_) return;
    seen_[client] = now_;
    const auto verdict = machine_->judge(name(client), task.id, digest);
    if (verdict != Verdict::kWanted) return answer(verdict);
    if (bad_.contains(digest) && rng_->below(2) == 0) {
      if (apply(machine_->refused(name(client), task.id, "norm", clock())))
        answer(Verdict::kRefused);
      return;
    }
    const std::int64_t round = machine_->accepting_round();
    const auto train = machine_->train_task(task.id);
    if (!train) return answer(Verdict::kLate);
    const Stored stored{{.client = name(client),
                         .digest = digest,
                         .trained_on = task.round,
                         .repeat = train->repeat,
                         .samples = 10,
                         .metrics = {{"loss", 1}}},
                        round};
    // The bytes are synced while other events come. Then the file gets its name, which is durable.
    after(rng_->below(60), [this, stored, answer, life = life_] {
      if (life != life_ || dead() || done_) return;
      disk_.insert(stored);
      if (crash_here()) return;
      const auto accepted = machine_->accepted(stored.update, stored.round, clock());
      if (accepted.verdict == Verdict::kWanted) {
        if (apply(accepted.step)) answer(Verdict::kWanted);
        return;
      }
      if (!machine_->in_use(stored)) disk_.erase(stored);
      answer(accepted.verdict);
    });
  }

  // ---- clients ----

  void poll(std::size_t client) {
    if (clients_[client].done) return;
    if (!lost(client)) {
      after(rng_->below(30), [this, client] { serve_poll(client); });
      if (rng_->below(20) == 0) after(rng_->below(500), [this, client] { serve_poll(client); });
    }
    after(150 + rng_->below(450), [this, client] { poll(client); });
  }

  void got_task(std::size_t client, const Task& task) {
    if (clients_[client].id == task.id) return;
    clients_[client].id = task.id;
    // A restarted client forgets the task, and gets it again.
    if (rng_->below(20) == 0) {
      clients_[client].id.clear();
      return;
    }
    const std::uint64_t work = rng_->below(10) == 0 ? rng_->below(3000) : rng_->below(700);
    if (task.kind == Task::Kind::kEvaluate) {
      after(work, [this, client, task] {
        if (lost(client) || dead() || done_) return;
        seen_[client] = now_;
        apply(machine_->evaluated(name(client), task.id, 5, {{"loss", 1}}, clock()));
      });
      return;
    }
    const std::string digest = digest_of(name(client) + task.id + std::to_string(rng_->below(2)));
    if (client == hostile_ && rng_->below(2) == 0) bad_.insert(digest);
    after(work, [this, client, task, digest] { upload(client, task, digest, 0); });
  }

  void upload(std::size_t client, const Task& task, const std::string& digest, int attempt) {
    if (acknowledged_.contains(key(client, task)) || given_up_.contains(key(client, task))) return;
    const auto answer = [this, client, task, digest](Verdict verdict) {
      if (lost(client)) return;
      if (verdict == Verdict::kWanted || verdict == Verdict::kDuplicate)
        acknowledged_[key(client, task)] = digest;
      else
        given_up_.insert(key(client, task));
    };
    if (!lost(client)) {
      after(rng_->below(100), [=, this] { serve_update(client, task, digest, answer); });
      if (rng_->below(10) == 0)
        after(rng_->below(800), [=, this] { serve_update(client, task, digest, answer); });
    }
    if (attempt < 20)
      after(300 + rng_->below(300), [=, this] { upload(client, task, digest, attempt + 1); });
  }

  static std::string key(std::size_t client, const Task& task) {
    return name(client) + "/" + std::to_string(task.round) + "/" + task.id;
  }

  std::string check_accepted() {
    for (const auto& [key, digest] : acknowledged_) {
      const std::size_t slash = key.rfind('/');
      const std::string update = key.substr(0, slash);
      if (voided_.contains(key.substr(slash + 1))) continue;
      const auto counted = folded_into_.find(update);
      if (counted != folded_into_.end()) continue;
      // Updates of a round that the end of the job cut are on the disk, and in no model.
      bool open = false;
      for (const Stored& stored : disk_)
        open |= stored.update.client + "/" + std::to_string(stored.update.trained_on) == update &&
                stored.update.digest == digest && stored.round >= machine_->round();
      if (!open || !(machine_->failed() || machine_->reason() != "Complete"))
        return "the accepted update " + update + " does not count: " + describe();
    }
    for (const auto& [update, round] : folded_into_) {
      const std::int64_t trained_on = parse_integer<std::int64_t>(split(update, '/')[1]).value();
      folded_ += trained_on != round ? 1 : 0;
    }
    if (!machine_->failed() && static_cast<std::int64_t>(results_.size()) != settings_.rounds)
      return "rounds are missing: " + describe();
    return "";
  }

  const std::unique_ptr<Rng> rng_;
  Settings settings_;
  std::size_t clients_count_ = 0, hostile_ = 0;
  bool secure_ = false;
  std::uint64_t loss_ = 0;

  Milliseconds now_ = 0, skew_ = 0;
  std::uint64_t numbers_ = 0;
  std::priority_queue<Event> events_;
  bool done_ = false;
  std::string error_;

  std::optional<RoundMachine> machine_;
  std::string saved_;
  std::set<Stored, ByName> disk_;
  std::uint64_t life_ = 1, dead_life_ = 0;
  std::size_t restarts_ = 0, folded_ = 0, crashes_left_ = 4;
  std::map<std::size_t, Milliseconds> seen_;

  std::map<std::size_t, Client> clients_;
  std::set<std::size_t> cut_;
  std::set<std::string> bad_;        // digests of updates with a bad content
  std::optional<std::string> task_;  // the open one
  std::int64_t task_round_ = 0;
  std::set<std::string> voided_;                     // tasks of repeated rounds
  std::map<std::string, std::string> acknowledged_;  // digests by client, round and task
  std::set<std::string> given_up_;
  std::map<std::int64_t, std::string> results_;      // by round
  std::map<std::string, std::int64_t> folded_into_;  // rounds by client and round
};

}  // namespace

Result run(std::uint64_t seed) {
  World world(seed);
  Result out;
  out.problem = world.run();
  out.restarts = world.restarts();
  out.folded = world.folded();
  out.repeats = world.repeats();
  out.failed = world.failed();
  return out;
}

}  // namespace varda::federated::schedule
