#include "aggregator/coordinator.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <utility>

#include "aggregator/next_model.h"
#include "aggregator/round_table.h"
#include "aggregator/update_check.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "federated/masked_update.h"
#include "federated/rules.h"

namespace varda::aggregator {
namespace {

using codec::Json;
using codec::Sha256;
using federated::AcceptedUpdate;
using federated::MaskedForm;
using federated::MaskedMean;
using federated::Metrics;
using federated::RefusalReason;
using federated::RoundMachine;
using federated::Settings;
using federated::Step;
using federated::Task;
using federated::UpdateReader;
using federated::Verdict;
using federated::Weights;
using Phase = RoundMachine::Phase;

constexpr std::int64_t kStateFormat = 1;
constexpr std::uint64_t kHeaderBytes = 1 << 20;  // room for the header of an update
constexpr std::chrono::milliseconds kFirstPause{200}, kLongestPause{10'000};
constexpr std::chrono::milliseconds kSecureStepMin{1000}, kSecureStepMax{60'000};
constexpr int kSecureStepsInDeadline = 5;

/// Members of settings that a running job keeps.
Settings changed_between_rounds(const Settings& before, Settings wanted) {
  // The budget may change; all else of privacy is a promise to the clients.
  const auto budget = wanted.privacy ? wanted.privacy->epsilon_max : std::nullopt;
  wanted.privacy = before.privacy;
  if (wanted.privacy) wanted.privacy->epsilon_max = budget;
  wanted.mode = before.mode;
  wanted.aggregator = before.aggregator;
  wanted.compression = before.compression;
  wanted.secure = before.secure;
  wanted.seed = before.seed;
  wanted.train.seed = before.seed;
  return wanted;
}

class CoordinatorImpl final : public Coordinator {
 public:
  CoordinatorImpl(Options options, const ModelFile& model, os::FileSystem& fs)
      : options_(std::move(options)),
        fs_(fs),
        layout_(model.weights().layout_pointer()),
        clock_(*options_.clock) {}

  Status prepare(const ModelFile& model, os::Path directory);

  Status seen(const std::string& client) override EXCLUDES(mutex_);
  void left(const std::string& client) override EXCLUDES(mutex_);
  std::optional<Task> task_for(const std::string& client) override EXCLUDES(mutex_);
  Json task_json(const std::string& client, const Task& task) override EXCLUDES(mutex_);
  Verdict judge(const std::string& client, std::string_view task, const Sha256& digest) override
      EXCLUDES(mutex_);
  Result<Submitted> submit(const std::string& client, const std::string& task, const Sha256& digest,
                           const os::Path& file) override;
  Result<Submitted> submit_bytes(const std::string& client, const std::string& task,
                                 std::string bytes) override;
  Status evaluated(const std::string& client, std::string_view task, double samples,
                   const Metrics& metrics) override EXCLUDES(mutex_);
  Status put_secure(const std::string& client, std::string_view task, SecureRound::Message message,
                    const Json& json) override EXCLUDES(mutex_);
  Result<std::optional<Json>> secure_answer(const std::string& client, std::string_view task,
                                            SecureRound::Message message) override EXCLUDES(mutex_);
  std::uint64_t update_bytes_max() const override { return update_bytes_max_; }
  Store& store() override { return *store_; }
  void count_bytes(std::uint64_t received, std::uint64_t sent) override {
    received_bytes_.fetch_add(received, std::memory_order_relaxed);
    sent_bytes_.fetch_add(sent, std::memory_order_relaxed);
  }

  void on_change(std::function<void()> changed) override EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    listeners_.push_back(std::move(changed));
  }
  void set_participants(std::optional<std::set<std::string>> participants) override
      EXCLUDES(mutex_);
  Status update_settings(const Settings& settings) override EXCLUDES(mutex_);
  Result<std::optional<SteadyTime>> work(const Context& ctx) override;
  Status run(const Context& ctx) override;
  Snapshot snapshot() override EXCLUDES(mutex_);
  const federated::LayoutPointer& layout() const override { return layout_; }
  Result<Weights> weights() override;
  std::string metrics_csv() override EXCLUDES(mutex_);

 private:
  RoundMachine::Options machine_options(const std::string& model) const;
  Status restore(const Json& state);
  Result<AcceptedUpdate> accepted_update(const StoredUpdate& stored);
  void note(const Step& step) REQUIRES(mutex_);
  std::string state_text() REQUIRES(mutex_);
  /// The state of this version or a later one is on the disk.
  Status persist() EXCLUDES(mutex_, saving_);
  void notify() EXCLUDES(mutex_);
  void find_lost(SteadyTime now) REQUIRES(mutex_);
  Status aggregate(const Context& ctx) EXCLUDES(mutex_);
  Verdict verdict(const std::string& client, std::string_view task, const Sha256& digest)
      REQUIRES(mutex_);
  /// A secure round for the open task.
  void begin_secure() REQUIRES(mutex_);
  /// Ends the steps of the secure round that are complete, or at their deadline.
  void advance_secure() REQUIRES(mutex_);
  void repeat_round(RoundMachine::RepeatCause cause, const std::string& why) REQUIRES(mutex_);
  /// The mean of a secure round. Nothing: shares are missing, or the round was given up.
  Result<std::optional<MaskedMean>> secure_mean(const std::vector<AcceptedUpdate>& updates,
                                                const NextModel::Round& round,
                                                const Settings& settings) EXCLUDES(mutex_);
  Status add_vectors(const std::vector<AcceptedUpdate>& updates, const NextModel::Round& round,
                     const std::string& task, privacy::SumServer& server);
  /// Removes files of updates that the repetition of a round dropped.
  Status remove_dropped(const std::vector<AcceptedUpdate>& updates, std::int64_t round)
      EXCLUDES(mutex_);
  Status collect_garbage() EXCLUDES(mutex_);
  /// The present round is the last one if the budget is too small for another.
  void end_at_budget() REQUIRES(mutex_);
  bool is_participant(const std::string& client) const REQUIRES(mutex_) {
    return !participants_ || participants_->contains(client);
  }
  using Check = std::function<UpdateCheck::Checked(const RoundMachine::TrainTask&)>;
  using Place = std::function<Status(const StoredUpdate&)>;
  /// `check` reads the update; `place` gives its file the name.
  Result<Submitted> accept(const std::string& client, const std::string& task, const Sha256& digest,
                           const Check& check, const Place& place);

  Options options_;
  os::FileSystem& fs_;
  const federated::LayoutPointer layout_;
  const Clock& clock_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<NextModel> next_model_;  // of the thread that runs the rounds, but needs()
  std::optional<UpdateCheck> check_;
  std::uint64_t update_bytes_max_ = 0;
  std::string job_;

  // Held while the state is written, so that an older state never replaces a newer one. Taken
  // before mutex_.
  Mutex saving_;
  std::uint64_t saved_ GUARDED_BY(saving_) = 0;

  Mutex mutex_;
  CondVar work_;
  Settings settings_ GUARDED_BY(mutex_);
  std::optional<RoundMachine> machine_ GUARDED_BY(mutex_);
  NextModel::State beside_ GUARDED_BY(mutex_);
  std::optional<SecureRound> secure_ GUARDED_BY(mutex_);  // of the open round
  std::optional<std::set<std::string>> participants_ GUARDED_BY(mutex_);
  std::map<std::string, SteadyTime> seen_ GUARDED_BY(mutex_);
  std::uint64_t version_ GUARDED_BY(mutex_) = 1;  // of the state
  std::uint64_t durable_ GUARDED_BY(mutex_) = 0;  // on the disk
  bool tasks_changed_ GUARDED_BY(mutex_) = false;
  bool woken_ GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> listeners_ GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> received_bytes_{0}, sent_bytes_{0};
};

// ---- opening ----

RoundMachine::Options CoordinatorImpl::machine_options(const std::string& model) const {
  return {.settings = options_.settings,
          .job = job_,
          .model = model,
          .updates_min = std::max(next_model_->needs().updates_min,
                                  options_.settings.secure ? federated::kSecureClientsMin : 0),
          .clients_expected = options_.clients_expected,
          .settle = options_.settle};
}

Status CoordinatorImpl::prepare(const ModelFile& model, os::Path directory) {
  TRY(store_, Store::open(std::move(directory), fs_));
  TRY(next_model_, NextModel::open(options_.settings, layout_, *store_));
  if (const auto& privacy = options_.settings.privacy) {
    const MutexLock lock(mutex_);
    TRY(beside_.privacy, PrivacyBudget::begin(*privacy));
  }
  const NextModel::Needs& needs = next_model_->needs();
  check_.emplace(UpdateCheck::Options{.layout = layout_,
                                      .norm_max = options_.settings.bounds.norm_max,
                                      .needs_loss = needs.loss,
                                      .needs_control = needs.control,
                                      .masked = options_.settings.secure.has_value()});
  // F64 values, or an index and a value for each; the same again for control variates.
  update_bytes_max_ =
      8 * static_cast<std::uint64_t>(layout_->size()) * (needs.control ? 2 : 1) + kHeaderBytes;
  TRY(const auto saved, store_->state());
  if (saved) {
    auto state = codec::parse_json(*saved);
    if (!state.ok()) return Error(Code::kCorrupt, "state.json: " + state.error().message());
    return restore(*state);
  }
  job_ = options_.job.empty() ? system_rng().uuid() : options_.job;
  TRY(const std::string bytes, model.weights().to_safetensors());
  TRY(const Sha256 initial, store_->put(bytes));
  const MutexLock lock(mutex_);
  settings_ = options_.settings;
  if (model.format() == "onnx") {
    TRY(const Sha256 file, store_->put(model.bytes()));
    beside_.file = file.hex();
  }
  machine_.emplace(machine_options(initial.hex()), clock_.now());
  return {};
}

Status CoordinatorImpl::restore(const Json& state) {
  if (state["format"].as_integer() != kStateFormat)
    return Error(Code::kCorrupt, "state.json has another format");
  if (state["layout"].as_string() != layout_->digest().hex())
    return Error(Code::kCorrupt, "the directory belongs to a job with another model");
  job_ = state["job"].as_string();
  if (!options_.job.empty() && options_.job != job_)
    return Error(Code::kCorrupt, "the directory belongs to the job " + job_);
  auto began = federated::parse_settings(state["settings"]);
  if (!began.ok()) return Error(Code::kCorrupt, "state.json: settings: " + began.error().message());
  options_.settings = changed_between_rounds(*began, options_.settings);
  const SteadyTime now = clock_.now();
  {
    const MutexLock lock(mutex_);
    settings_ = options_.settings;
    beside_ = {state["rule"].as_string(), state["control"].as_string(), state["file"].as_string(),
               state["updatesSha256"].as_string(), std::nullopt};
    if (const auto& privacy = settings_.privacy) {
      TRY(beside_.privacy, PrivacyBudget::restore(*privacy, state["privacy"]));
    }
  }
  NextModel::State beside;
  {
    const MutexLock lock(mutex_);
    beside = beside_;
  }
  TRY_VOID(next_model_->reset(beside));
  // The machine without the updates knows the open round.
  TRY(const RoundMachine bare,
      RoundMachine::restore(machine_options(""), state["rounds"], {}, now));
  std::vector<RoundMachine::Stored> stored;
  TRY(const std::vector<StoredUpdate> files, store_->updates());
  for (const StoredUpdate& file : files) {
    if (file.round < bare.round()) continue;  // a removal that a crash cut
    if (options_.settings.secure) {
      // The keys of these updates are lost with the process.
      TRY_VOID(store_->remove(file));
      continue;
    }
    auto update = accepted_update(file);
    if (!update.ok()) {
      log::error("stored update is unusable",
                 {{"client", file.client}, {"round", file.round}, {"error", update.error()}});
      continue;
    }
    stored.push_back({std::move(*update), file.round});
  }
  const MutexLock lock(mutex_);
  TRY(machine_, RoundMachine::restore(machine_options(""), state["rounds"], stored, now));
  for (const auto& client : machine_->clients()) seen_[client.name] = now;
  if (options_.settings.secure) {
    repeat_round(RoundMachine::RepeatCause::kRestarted, "the aggregator restarted");
    begin_secure();
  }
  if (machine_->phase() == Phase::kEvaluating) end_at_budget();
  log::info("job continues", {{"job", job_},
                              {"round", machine_->round()},
                              {"phase", to_string(machine_->phase())},
                              {"updates", machine_->updates().size()}});
  return {};
}

/// Reads an update that was accepted before this start.
Result<AcceptedUpdate> CoordinatorImpl::accepted_update(const StoredUpdate& stored) {
  auto opened = UpdateReader::open(fs_, store_->path_of(stored), layout_);
  if (!opened.ok()) return opened.error().error;
  const UpdateReader& reader = **opened;
  const std::string& task = reader.info().task;
  return AcceptedUpdate{
      .client = stored.client,
      .digest = stored.digest.hex(),
      // The number before the first '-'. The machine checks it against the tasks of the job.
      .trained_on = std::strtoll(task.c_str(), nullptr, 10),
      .samples = static_cast<double>(reader.info().samples),
      .norm = reader.norm(),
      .control_norm = reader.control_norm(),
      .metrics = bounded_metrics(reader.info().metrics)};
}

// ---- state ----

void CoordinatorImpl::note(const Step& step) {
  version_ += step.save ? 1 : 0;
  tasks_changed_ |= step.tasks;
  if (step.tasks || step.finished) begin_secure();
  if (step.save || step.tasks || step.aggregate || step.finished) {
    woken_ = true;
    work_.notify_all();
  }
}

std::string CoordinatorImpl::state_text() {
  Json out = Json::object({{"format", kStateFormat},
                           {"job", job_},
                           {"layout", layout_->digest().hex()},
                           {"settings", federated::to_json(settings_)},
                           {"rule", beside_.rule},
                           {"control", beside_.control},
                           {"file", beside_.file},
                           {"updatesSha256", beside_.updates},
                           {"rounds", machine_->to_json(clock_.now())}});
  if (beside_.privacy) out.set("privacy", beside_.privacy->to_json());
  return codec::write_json(out);
}

Status CoordinatorImpl::persist() {
  const MutexLock saving(saving_);
  std::string text;
  std::uint64_t version = 0;
  {
    const MutexLock lock(mutex_);
    if (version_ == saved_) return {};
    version = version_;
    text = state_text();
  }
  TRY_VOID(store_->save_state(text));
  saved_ = version;
  const MutexLock lock(mutex_);
  durable_ = version;
  tasks_changed_ = true;  // task_for() shows only what is durable
  return {};
}

void CoordinatorImpl::notify() {
  std::vector<std::function<void()>> listeners;
  {
    const MutexLock lock(mutex_);
    if (!std::exchange(tasks_changed_, false)) return;
    listeners = listeners_;
  }
  for (const auto& changed : listeners) changed();
}

// ---- clients ----

Status CoordinatorImpl::seen(const std::string& client) {
  const MutexLock lock(mutex_);
  if (!participants_ && options_.admission == Options::Admission::kAssigned)
    return Error(Code::kUnavailable, "the participants of the job are not known yet");
  if (!is_participant(client))
    return Error(Code::kForbidden, "\"" + client + "\" is no participant of this job");
  const auto at = seen_.find(client);
  const SteadyTime now = clock_.now();
  if (at == seen_.end()) {
    if (seen_.size() >= options_.clients_max)
      return Error(Code::kExhausted, "the job has " + std::to_string(seen_.size()) + " clients");
    seen_.emplace(client, now);
    // The wait for further clients may have begun, so the thread of the rounds has a new deadline.
    woken_ = true;
    work_.notify_all();
  } else {
    at->second = now;
  }
  note(machine_->joined(client, now));
  return {};
}

void CoordinatorImpl::left(const std::string& client) {
  const MutexLock lock(mutex_);
  seen_.erase(client);
  note(machine_->left(client, clock_.now()));
}

std::optional<Task> CoordinatorImpl::task_for(const std::string& client) {
  const MutexLock lock(mutex_);
  if (durable_ != version_) return std::nullopt;  // the thread of the rounds notifies soon
  return machine_->task_for(client);
}

Json CoordinatorImpl::task_json(const std::string& client, const Task& task) {
  const MutexLock lock(mutex_);
  if (task.kind == Task::Kind::kEnd)
    return Json::object({{"id", task.id},
                         {"kind", "end"},
                         {"round", task.round},
                         {"rounds", settings_.rounds},
                         {"failed", machine_->failed()},
                         {"reason", machine_->reason()},
                         {"message", machine_->message()}});
  return task_document(task, client,
                       {.settings = settings_,
                        .needs = next_model_->needs(),
                        .extras = options_.extras,
                        .file = beside_.file,
                        .control = beside_.control,
                        .update_bytes_max = update_bytes_max_,
                        .values = layout_->size(),
                        .job = job_},
                       *store_, clock_.now());
}

Verdict CoordinatorImpl::judge(const std::string& client, std::string_view task,
                               const Sha256& digest) {
  const MutexLock lock(mutex_);
  return verdict(client, task, digest);
}

Verdict CoordinatorImpl::verdict(const std::string& client, std::string_view task,
                                 const Sha256& digest) {
  const Verdict out = machine_->judge(client, task, digest.hex());
  // A vector without masks of all neighbours would spoil the sum.
  if (out == Verdict::kWanted && settings_.secure &&
      (!secure_ || secure_->task() != task || secure_->step() != SecureRound::Step::kVectors))
    return Verdict::kNotChosen;
  return out;
}

Result<Coordinator::Submitted> CoordinatorImpl::submit(const std::string& client,
                                                       const std::string& task,
                                                       const Sha256& digest, const os::Path& file) {
  return accept(
      client, task, digest,
      [&](const RoundMachine::TrainTask& train) {
        return check_->file(fs_, file, task, Sha256::parse(train.model).value());
      },
      [&](const StoredUpdate& stored) { return store_->accept(file, stored); });
}

Result<Coordinator::Submitted> CoordinatorImpl::submit_bytes(const std::string& client,
                                                             const std::string& task,
                                                             std::string bytes) {
  return accept(
      client, task, Sha256::of(bytes),
      [&](const RoundMachine::TrainTask& train) {
        return check_->bytes(bytes, task, Sha256::parse(train.model).value());
      },
      [&](const StoredUpdate& stored) { return store_->accept_bytes(bytes, stored); });
}

Result<Coordinator::Submitted> CoordinatorImpl::accept(const std::string& client,
                                                       const std::string& task,
                                                       const Sha256& digest, const Check& check,
                                                       const Place& place) {
  std::optional<RoundMachine::TrainTask> train;
  {
    const MutexLock lock(mutex_);
    const Verdict offered = verdict(client, task, digest);
    train = machine_->train_task(task);
    if (offered != Verdict::kWanted || !train)
      return Submitted{train ? offered : Verdict::kLate, "", std::nullopt};
  }
  const UpdateCheck::Checked checked = check(*train);
  if (!checked.ok()) {
    const federated::Refusal& refusal = checked.error();
    if (refusal.reason == RefusalReason::kIo) return refusal.error;
    log::warn("update refused", {{"client", client},
                                 {"task", task},
                                 {"reason", to_string(refusal.reason)},
                                 {"error", refusal.error}});
    {
      const MutexLock lock(mutex_);
      note(machine_->refused(
          client, task, std::string(to_string(refusal.reason)) + ": " + refusal.error.message(),
          clock_.now()));
    }
    TRY_VOID(persist());
    notify();
    return Submitted{Verdict::kRefused, refusal.error.message(), refusal.reason};
  }
  AcceptedUpdate update{.client = client,
                        .digest = digest.hex(),
                        .trained_on = train->round,
                        .repeat = train->repeat,
                        .samples = checked->samples,
                        .norm = checked->norm,
                        .control_norm = checked->control_norm,
                        .metrics = checked->metrics};
  StoredUpdate stored{.client = client, .digest = digest};
  {
    const MutexLock lock(mutex_);
    stored.round = machine_->accepting_round();
    if (!machine_->train_task(task)) return Submitted{Verdict::kLate, "", std::nullopt};
  }
  TRY_VOID(place(stored));
  Verdict verdict;
  bool keep = false;
  {
    const MutexLock lock(mutex_);
    const auto accepted = machine_->accepted(update, stored.round, clock_.now());
    verdict = accepted.verdict;
    keep = machine_->in_use({update, stored.round});
    note(accepted.step);
  }
  if (!keep && verdict != Verdict::kWanted) TRY_VOID(store_->remove(stored));
  // A round that this update has closed must be closed on the disk too: the next update counts for
  // the next round.
  TRY_VOID(persist());
  notify();
  if (verdict == Verdict::kWanted)
    log::info("update accepted", {{"client", client}, {"task", task}, {"round", stored.round}});
  return Submitted{verdict, "", std::nullopt};
}

Status CoordinatorImpl::evaluated(const std::string& client, std::string_view task, double samples,
                                  const Metrics& metrics) {
  {
    const MutexLock lock(mutex_);
    note(machine_->evaluated(client, task, samples, metrics, clock_.now()));
  }
  TRY_VOID(persist());
  notify();
  return {};
}

void CoordinatorImpl::set_participants(std::optional<std::set<std::string>> participants) {
  const MutexLock lock(mutex_);
  participants_ = std::move(participants);
  const SteadyTime now = clock_.now();
  if (!participants_) return;
  for (auto at = seen_.begin(); at != seen_.end();) {
    if (participants_->contains(at->first)) {
      ++at;
      continue;
    }
    note(machine_->left(at->first, now));
    at = seen_.erase(at);
  }
  note(machine_->expect_clients(static_cast<std::int64_t>(participants_->size()), now));
}

Status CoordinatorImpl::update_settings(const Settings& settings) {
  const MutexLock lock(mutex_);
  const Settings wanted = changed_between_rounds(settings_, settings);
  if (federated::to_json(wanted) == federated::to_json(settings_)) return {};
  settings_ = wanted;
  machine_->use_settings(wanted);
  note({.save = true, .tasks = true});
  log::info("settings changed", {{"job", job_}});
  return {};
}

// ---- rounds ----

void CoordinatorImpl::find_lost(SteadyTime now) {
  std::vector<std::string> lost;
  for (const auto& [client, at] : seen_)
    if (now - at > options_.lost_after) lost.push_back(client);
  for (const std::string& client : lost) {
    seen_.erase(client);
    note(machine_->left(client, now));
    log::info("client lost", {{"client", client}});
  }
}

Result<std::optional<SteadyTime>> CoordinatorImpl::work(const Context& ctx) {
  bool aggregating = false;
  std::vector<AcceptedUpdate> before;  // of a secure round, which may be repeated
  std::int64_t round = 0;
  {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.now();
    if (settings_.secure) before = machine_->updates();
    round = machine_->round();
    find_lost(now);
    note(machine_->time_passed(now));
    advance_secure();
    aggregating = machine_->phase() == Phase::kAggregating;
  }
  TRY_VOID(persist());
  notify();
  if (aggregating) {
    TRY_VOID(aggregate(ctx));
    TRY_VOID(persist());
    notify();
    TRY_VOID(collect_garbage());
  }
  TRY_VOID(remove_dropped(before, round));
  const MutexLock lock(mutex_);
  std::optional<SteadyTime> due = machine_->due();
  for (const auto& [client, at] : seen_) {
    const SteadyTime lost = at + options_.lost_after + std::chrono::milliseconds(1);
    due = due ? std::min(*due, lost) : lost;
  }
  if (secure_ && secure_->due()) due = due ? std::min(*due, *secure_->due()) : secure_->due();
  const bool waits = secure_ && secure_->step() == SecureRound::Step::kUnmask;
  if (machine_->phase() == Phase::kAggregating && !waits) due = clock_.now();
  return due;
}

Status CoordinatorImpl::run(const Context& ctx) {
  std::chrono::milliseconds pause = kFirstPause;
  while (true) {
    TRY_VOID(ctx.check());
    {
      const MutexLock lock(mutex_);
      woken_ = false;
    }
    const auto due = work(ctx);
    if (!due.ok()) {
      TRY_VOID(ctx.check());
      if (due.error().terminal()) {
        const MutexLock lock(mutex_);
        note(machine_->fail("AggregationFailed", due.error().message(), clock_.now()));
        continue;
      }
      log::error("round is stuck, retrying", {{"error", due.error()}});
      TRY_VOID(ctx.sleep_for(pause));
      pause = std::min(2 * pause, kLongestPause);
      continue;
    }
    pause = kFirstPause;
    const MutexLock lock(mutex_);
    if (machine_->phase() == Phase::kFinished && durable_ == version_) return {};
    while (!woken_ && !ctx.done()) {
      SteadyTime until = clock_.now() + std::chrono::hours(1);
      if (*due) until = std::min(until, **due);
      if (ctx.deadline()) until = std::min(until, *ctx.deadline());
      if (!work_.wait_until(mutex_, ctx.stop_token(), until)) break;
    }
  }
}

Status CoordinatorImpl::aggregate(const Context& ctx) {
  std::vector<AcceptedUpdate> updates;
  NextModel::Round round{.threads = options_.threads};
  Settings settings;
  NextModel::State beside;
  {
    const MutexLock lock(mutex_);
    updates = machine_->updates();
    round.number = machine_->round();
    round.wanted = static_cast<std::uint64_t>(std::max<std::int64_t>(1, machine_->target()));
    round.model = machine_->model();
    settings = settings_;
    beside = beside_;
  }
  round.bounds = settings.bounds;
  round.is_sum = settings.secure.has_value();
  const SteadyTime begin = clock_.now();
  std::vector<std::unique_ptr<UpdateReader>> readers;
  std::vector<federated::Contribution> contributions;
  if (round.is_sum) {
    TRY(const auto mean, secure_mean(updates, round, settings));
    if (!mean) return {};
    TRY(const std::string bytes,
        federated::encode_update({.base = Sha256(), .samples = 1}, *layout_, mean->delta));
    auto opened = UpdateReader::of(bytes, layout_);
    if (!opened.ok()) return opened.error().error.context("sum of the updates");
    readers.push_back(std::move(*opened));
    contributions.push_back({.client = "sum", .update = readers.back().get()});
  } else {
    for (const AcceptedUpdate& update : updates) {
      federated::UpdateLimits limits;
      limits.checked = {update.norm, update.control_norm};
      TRY(const Sha256 digest, Sha256::parse(update.digest));
      auto opened = UpdateReader::open(
          fs_, store_->path_of(StoredUpdate{round.number, update.client, digest}), layout_, limits);
      if (!opened.ok()) return opened.error().error.context("update of " + update.client);
      readers.push_back(std::move(*opened));
      const auto loss = update.metrics.find("loss");
      contributions.push_back({.client = update.client,
                               .samples = readers.back()->info().samples,
                               .loss = loss == update.metrics.end() ? 0 : loss->second,
                               .update = readers.back().get(),
                               .scale = federated::staleness_scale(static_cast<std::uint64_t>(
                                   std::max<std::int64_t>(0, round.number - update.trained_on)))});
    }
  }
  TRY(auto made, next_model_->make(ctx, round, std::move(contributions), std::move(beside)));
  readers.clear();
  if (!made) {
    const MutexLock lock(mutex_);
    note(machine_->too_few(clock_.now()));
    return {};
  }
  codec::Sha256Stream chain;
  chain.update(made->state.updates);
  for (const AcceptedUpdate& update : updates)
    if (!made->quarantined.contains(update.client)) chain.update(update.digest);
  made->state.updates = chain.finish().hex();
  const MutexLock lock(mutex_);
  beside_ = made->state;
  end_at_budget();
  note(machine_->aggregated(made->model.hex(), made->quarantined, clock_.now()));
  log::info("round aggregated",
            {{"round", round.number},
             {"updates", updates.size() - made->quarantined.size()},
             {"model", made->model.hex()},
             {"seconds", std::chrono::duration<double>(clock_.now() - begin).count()}});
  return {};
}

// ---- secure aggregation ----

void CoordinatorImpl::begin_secure() {
  if (!settings_.secure) return;
  const auto task = machine_->open_task();
  if (!task) secure_.reset();
  if (!task || (secure_ && secure_->task() == *task)) return;
  const auto step_time = std::clamp<std::chrono::milliseconds>(
      settings_.round_deadline / kSecureStepsInDeadline, kSecureStepMin, kSecureStepMax);
  secure_.emplace(*task,
                  SecureRound::Options{
                      .sum = {.id = secure_sum_name(job_, *task), .length = layout_->size() + 1},
                      .neighbours = static_cast<std::size_t>(settings_.secure->neighbours),
                      .seed = system_rng().next(),
                      .step_time = step_time},
                  clock_.now());
}

void CoordinatorImpl::advance_secure() {
  if (!secure_ || machine_->phase() != Phase::kTraining) return;
  const auto least = static_cast<std::size_t>(machine_->quorum());
  const auto closed = secure_->advance(machine_->working(), least, clock_.now());
  if (!closed.ok())
    return repeat_round(RoundMachine::RepeatCause::kFailed, closed.error().message());
  if (!*closed) return;
  log::info("step of secure aggregation ended",
            {{"task", secure_->task()},
             {"step", secure_->step() == SecureRound::Step::kShares ? "keys" : "shares"},
             {"clients", (*closed)->size()}});
  note(machine_->fix_clients(**closed, clock_.now()));
}

void CoordinatorImpl::repeat_round(RoundMachine::RepeatCause cause, const std::string& why) {
  const Step step = machine_->repeat_round(cause, why, clock_.now());
  if (step.save) log::warn("round begins again", {{"round", machine_->round()}, {"reason", why}});
  note(step);
}

Status CoordinatorImpl::put_secure(const std::string& client, std::string_view task,
                                   SecureRound::Message message, const Json& json) {
  const MutexLock lock(mutex_);
  if (!settings_.secure) return Error(Code::kNotFound, "the job has no secure aggregation");
  if (!secure_ || secure_->task() != task)
    return Error(Code::kConflict, "the round of this task is over");
  const Status put = secure_->put(client, message, json);
  // New keys after the exchange: the client lost the old ones in a restart.
  if (!put.ok() && put.error().code() == Code::kConflict && message == SecureRound::Message::kKeys)
    note(machine_->withdrew(client, clock_.now()));
  TRY_VOID(put);
  woken_ = true;
  work_.notify_all();
  return {};
}

Result<std::optional<Json>> CoordinatorImpl::secure_answer(const std::string& client,
                                                           std::string_view task,
                                                           SecureRound::Message message) {
  const MutexLock lock(mutex_);
  if (!settings_.secure) return Error(Code::kNotFound, "the job has no secure aggregation");
  if (!secure_ || secure_->task() != task)
    return Error(Code::kConflict, "the round of this task is over");
  return secure_->get(client, message);
}

Result<std::optional<MaskedMean>> CoordinatorImpl::secure_mean(
    const std::vector<AcceptedUpdate>& updates, const NextModel::Round& round,
    const Settings& settings) {
  const auto nothing = [] { return std::optional<MaskedMean>(); };
  std::unique_ptr<privacy::SumServer> server;
  std::string task;
  MaskedForm form;
  SecureRound::Step step = SecureRound::Step::kVectors;
  {
    const MutexLock lock(mutex_);
    if (!secure_) return nothing();
    step = secure_->step();
    if (step == SecureRound::Step::kUnmask && !secure_->can_unmask()) {
      if (clock_.now() >= *secure_->due())
        repeat_round(RoundMachine::RepeatCause::kFailed,
                     "too few clients revealed shares of their neighbours' masks in time");
      return nothing();
    }
    task = secure_->task();
    form = {.limit = federated::secure_limit(settings), .clients = secure_->clients()};
    server = secure_->take_server();
  }
  // The sum needs no lock, so that clients wait for no arithmetic.
  Status status;
  std::optional<MaskedMean> out;
  if (step == SecureRound::Step::kVectors) {
    status = add_vectors(updates, round, task, *server);
  } else {
    const auto sum = server->sum();
    const bool is_central =
        settings.privacy && settings.privacy->mode == federated::PrivacyMode::kCentral;
    auto mean = sum.ok() ? mean_of(form, *sum, server->summed().size(),
                                   is_central ? static_cast<double>(round.wanted) : 0)
                         : sum.error();
    if (mean.ok())
      out = std::move(*mean);
    else
      status = mean.error();
  }
  const MutexLock lock(mutex_);
  if (!secure_ || secure_->task() != task) return nothing();
  const bool is_disk = !status.ok() && status.error().code() == Code::kInternal;
  secure_->return_server(std::move(server), is_disk ? step : SecureRound::Step::kUnmask,
                         clock_.now());
  if (is_disk) return status.error();
  if (!status.ok()) {
    repeat_round(RoundMachine::RepeatCause::kFailed, status.error().message());
    return nothing();
  }
  tasks_changed_ |= step == SecureRound::Step::kVectors;  // the requests for shares are ready
  return out;
}

/// An error of the disk has the code kInternal; all others end the secure round.
Status CoordinatorImpl::add_vectors(const std::vector<AcceptedUpdate>& updates,
                                    const NextModel::Round& round, const std::string& task,
                                    privacy::SumServer& server) {
  TRY(const Sha256 base, Sha256::parse(round.model));
  for (const AcceptedUpdate& update : updates) {
    if (server.summed().contains(update.client)) continue;  // before an error of the disk
    TRY(const Sha256 digest, Sha256::parse(update.digest));
    const os::Path path = store_->path_of(StoredUpdate{round.number, update.client, digest});
    const auto file = federated::read_masked(fs_, path, task, base, layout_->size() + 1);
    if (!file.ok()) {
      const Error& error = file.error().error;
      return Error(file.error().reason == RefusalReason::kIo ? Code::kInternal : Code::kCorrupt,
                   "update of " + update.client + ": " + error.message());
    }
    TRY_VOID(server.take_vector(update.client, file->values));
  }
  return server.close_vectors();
}

Status CoordinatorImpl::remove_dropped(const std::vector<AcceptedUpdate>& updates,
                                       std::int64_t round) {
  for (const AcceptedUpdate& update : updates) {
    {
      const MutexLock lock(mutex_);
      if (machine_->round() != round || machine_->in_use({update, round})) continue;
      // The directory of a complete round goes as a whole.
      if (machine_->phase() == Phase::kEvaluating || machine_->phase() == Phase::kFinished) break;
    }
    TRY(const Sha256 digest, Sha256::parse(update.digest));
    TRY_VOID(store_->remove({round, update.client, digest}));
  }
  return {};
}

void CoordinatorImpl::end_at_budget() {
  if (!beside_.privacy || beside_.privacy->affords_another(settings_.privacy->epsilon_max)) return;
  machine_->end_after_round("PrivacyBudget",
                            "another round would spend more than epsilon " +
                                codec::write_json(*settings_.privacy->epsilon_max));
}

Status CoordinatorImpl::collect_garbage() {
  std::set<std::string> files;
  std::int64_t round = 0;
  {
    const MutexLock lock(mutex_);
    if (durable_ != version_) return {};
    files = machine_->models_in_use();
    // Clients may still load the model before.
    const auto& history = machine_->history();
    if (history.size() > 1) files.insert(history[history.size() - 2].model);
    for (const std::string& file : {beside_.rule, beside_.control, beside_.file})
      files.insert(file);
    round = machine_->round();
    if (machine_->phase() == Phase::kEvaluating || machine_->phase() == Phase::kFinished) ++round;
  }
  TRY_VOID(store_->remove_rounds_before(round));
  return store_->keep_only(files);
}

// ---- views ----

Snapshot CoordinatorImpl::snapshot() {
  const MutexLock lock(mutex_);
  Snapshot out{.phase = machine_->phase(),
               .round = machine_->round(),
               .rounds = settings_.rounds,
               .attempt = machine_->attempt(),
               .target = machine_->target(),
               .quorum = machine_->quorum(),
               .updates = static_cast<std::int64_t>(machine_->updates().size()),
               .present = machine_->present(),
               .clients = machine_->clients(),
               .history = machine_->history(),
               .model = machine_->model(),
               .updates_digest = beside_.updates,
               .job = job_,
               .evaluating = machine_->evaluating(),
               .failed = machine_->failed(),
               .reason = machine_->reason(),
               .message = machine_->message(),
               .received_bytes = received_bytes_.load(std::memory_order_relaxed),
               .sent_bytes = sent_bytes_.load(std::memory_order_relaxed)};
  if (beside_.privacy) out.epsilon = beside_.privacy->epsilon();
  if (const auto due = machine_->due())
    out.seconds_left = std::chrono::duration<double>(*due - clock_.now()).count();
  return out;
}

Result<Weights> CoordinatorImpl::weights() {
  std::string hex;
  {
    const MutexLock lock(mutex_);
    hex = machine_->model();
  }
  return NextModel::read(*store_, hex, *layout_);
}

std::string CoordinatorImpl::metrics_csv() {
  const MutexLock lock(mutex_);
  return round_table(machine_->history());
}

}  // namespace

Result<std::unique_ptr<Coordinator>> Coordinator::open(Options options, const ModelFile& model,
                                                       os::Path directory, os::FileSystem& fs) {
  auto out = std::make_unique<CoordinatorImpl>(std::move(options), model, fs);
  TRY_VOID(out->prepare(model, std::move(directory)));
  return std::unique_ptr<Coordinator>(std::move(out));
}

}  // namespace varda::aggregator
