#include "aggregator/coordinator.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

#include "aggregator/privacy_budget.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "federated/rules.h"

namespace varda::aggregator {
namespace {

using codec::Json;
using codec::Sha256;
using federated::AcceptedUpdate;
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
constexpr std::size_t kMetricsMax = 64, kMetricNameBytesMax = 64;
constexpr std::uint64_t kHeaderBytes = 1 << 20;  // room for the header of an update
constexpr std::chrono::milliseconds kFirstPause{200}, kLongestPause{10'000};

/// Small and finite, whatever a client sends.
Metrics bounded_metrics(const Json& json) {
  Metrics out;
  for (const auto& [name, value] : json.as_object()) {
    if (out.size() == kMetricsMax) break;
    if (name.empty() || name.size() > kMetricNameBytesMax || !value.is_number()) continue;
    if (std::isfinite(value.as_double())) out.emplace(name, value.as_double());
  }
  return out;
}

federated::Bounds bounds_of(const federated::BoundsSettings& settings) {
  return {.norm_max = settings.norm_max,
          .norm_factor = settings.norm_factor,
          .weight_factor = settings.weight_factor,
          .weight_max = settings.weight_max};
}

/// Members of settings that a running job keeps.
Settings changed_between_rounds(const Settings& before, Settings wanted) {
  // The budget may change; all else of privacy is a promise to the clients.
  const auto budget = wanted.privacy ? wanted.privacy->epsilon_max : std::nullopt;
  wanted.privacy = before.privacy;
  if (wanted.privacy) wanted.privacy->epsilon_max = budget;
  wanted.mode = before.mode;
  wanted.aggregator = before.aggregator;
  wanted.compression = before.compression;
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
  Json task_json(const Task& task) override EXCLUDES(mutex_);
  Verdict judge(const std::string& client, std::string_view task, const Sha256& digest) override
      EXCLUDES(mutex_);
  Result<Submitted> submit(const std::string& client, const std::string& task, const Sha256& digest,
                           const os::Path& file) override;
  Result<Submitted> submit_bytes(const std::string& client, const std::string& task,
                                 std::string bytes) override;
  Status refuse(const std::string& client, const std::string& task, const Error& why) override
      EXCLUDES(mutex_);
  Status evaluated(const std::string& client, std::string_view task, double samples,
                   const Metrics& metrics) override EXCLUDES(mutex_);
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
  /// Everything but the machine that a restart needs. Changes with the model.
  struct Beside {
    std::string rule;     // SHA-256 of the rule's state; "": none yet
    std::string control;  // SHA-256 of the server's control variate; "": none
    std::string file;     // SHA-256 of the model file for clients
    std::string updates;  // chained digest of all updates that counted
    std::optional<PrivacyBudget> privacy;
  };

  RoundMachine::Options machine_options(const std::string& model) const;
  Status restore(const Json& state);
  Json rule_json() const {
    return Json::object({{"name", options_.settings.aggregator.name},
                         {"parameters", options_.settings.aggregator.parameters}});
  }
  /// The rule in the state of the last round.
  Status reset_rule() EXCLUDES(mutex_);
  Result<AcceptedUpdate> accepted_update(const StoredUpdate& stored);
  void note(const Step& step) REQUIRES(mutex_);
  std::string state_text() REQUIRES(mutex_);
  /// The state of this version or a later one is on the disk.
  Status persist() EXCLUDES(mutex_, saving_);
  void notify() EXCLUDES(mutex_);
  void find_lost(SteadyTime now) REQUIRES(mutex_);
  Status aggregate(const Context& ctx) EXCLUDES(mutex_);
  Status collect_garbage() EXCLUDES(mutex_);
  /// The present round is the last one if the budget is too small for another.
  void end_at_budget() REQUIRES(mutex_);
  bool is_participant(const std::string& client) const REQUIRES(mutex_) {
    return !participants_ || participants_->contains(client);
  }
  /// The update is checked; `place` gives its file the name.
  Result<Submitted> accept(const std::string& client, const std::string& task, const Sha256& digest,
                           UpdateReader::Opened opened,
                           const std::function<Status(const StoredUpdate&)>& place);
  federated::UpdateLimits limits_for(const std::string& task,
                                     const RoundMachine::TrainTask& train) const;

  Options options_;
  os::FileSystem& fs_;
  const federated::LayoutPointer layout_;
  const Clock& clock_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<federated::Rule> rule_;  // of the thread that runs the rounds
  bool rule_usable_ = true;                // false: an aggregation failed halfway
  bool needs_loss_ = false, needs_control_ = false;
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
  Beside beside_ GUARDED_BY(mutex_);
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
          .updates_min = static_cast<std::int64_t>(rule_->updates_min()),
          .clients_expected = options_.clients_expected,
          .settle = options_.settle};
}

Status CoordinatorImpl::prepare(const ModelFile& model, os::Path directory) {
  TRY(store_, Store::open(std::move(directory), fs_));
  TRY(rule_, federated::Rule::make(rule_json(), layout_).context("aggregator"));
  if (const auto& privacy = options_.settings.privacy) {
    if (!rule_->supports_privacy())
      return Error(Code::kInvalid, "privacy: the rule " + rule_->name() +
                                       " has no private form; FedAvg, FedProx, FedAvgM, "
                                       "FedAdagrad, FedAdam and FedYogi have one");
    const MutexLock lock(mutex_);
    TRY(beside_.privacy, PrivacyBudget::begin(*privacy));
  }
  needs_loss_ = rule_->needs_loss();
  needs_control_ = rule_->needs_control();
  // F64 values, or an index and a value for each; the same again for control variates.
  update_bytes_max_ =
      8 * static_cast<std::uint64_t>(layout_->size()) * (needs_control_ ? 2 : 1) + kHeaderBytes;
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
  TRY_VOID(reset_rule());
  // The machine without the updates knows the open round.
  TRY(const RoundMachine bare,
      RoundMachine::restore(machine_options(""), state["rounds"], {}, now));
  std::vector<RoundMachine::Stored> stored;
  TRY(const std::vector<StoredUpdate> files, store_->updates());
  for (const StoredUpdate& file : files) {
    if (file.round < bare.round()) continue;  // a removal that a crash cut
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
  if (machine_->phase() == Phase::kEvaluating) end_at_budget();
  log::info("job continues", {{"job", job_},
                              {"round", machine_->round()},
                              {"phase", to_string(machine_->phase())},
                              {"updates", machine_->updates().size()}});
  return {};
}

Status CoordinatorImpl::reset_rule() {
  TRY(rule_, federated::Rule::make(rule_json(), layout_).context("aggregator"));
  std::string hex;
  {
    const MutexLock lock(mutex_);
    hex = beside_.rule;
  }
  if (!hex.empty()) {
    TRY(const Sha256 digest, Sha256::parse(hex).context("state of the rule"));
    TRY(std::string bytes, store_->read(digest).context("state of the rule"));
    TRY_VOID(rule_->restore(std::move(bytes)).context("state of the rule"));
  }
  rule_usable_ = true;
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

Json CoordinatorImpl::task_json(const Task& task) {
  const MutexLock lock(mutex_);
  constexpr const char* kKinds[] = {"train", "evaluate", "end"};
  Json out = Json::object({{"id", task.id},
                           {"kind", kKinds[static_cast<int>(task.kind)]},
                           {"round", task.round},
                           {"rounds", settings_.rounds}});
  if (task.kind == Task::Kind::kEnd) {
    out.set("failed", machine_->failed());
    out.set("reason", machine_->reason());
    out.set("message", machine_->message());
    return out;
  }
  const auto file = [&](const std::string& hex) {
    const auto digest = Sha256::parse(hex);
    return Json::object(
        {{"sha256", hex}, {"bytes", digest.ok() ? store_->size_of(*digest).value_or(0) : 0}});
  };
  out.set("model", file(task.model));
  if (task.deadline)
    out.set("secondsLeft",
            std::max(0.0, std::chrono::duration<double>(*task.deadline - clock_.now()).count()));
  if (!beside_.file.empty()) {
    Json model = file(beside_.file);
    if (!options_.extras.labels.empty()) {
      Json labels = Json::array();
      for (const std::string& label : options_.extras.labels) labels.push_back(label);
      model.set("labels", std::move(labels));
    }
    if (!options_.extras.yaml.empty()) model.set("yaml", options_.extras.yaml);
    out.set("file", std::move(model));
  }
  federated::TrainSettings train = settings_.train;
  // Another order of samples in each round, and the same one after a restart.
  const std::string mixed = std::to_string(settings_.seed) + "/" + std::to_string(task.round);
  train.seed = std::stoull(Sha256::of(mixed).hex().substr(0, 12), nullptr, 16);
  Json train_json = federated::to_json(train);
  if (task.kind == Task::Kind::kTrain) {
    if (needs_loss_) train_json.set("lossBefore", true);
    if (needs_control_)
      train_json.set("control", beside_.control.empty() ? Json(true) : file(beside_.control));
    Json update = Json::object(
        {{"encoding", to_string(settings_.compression.encoding)}, {"bytesMax", update_bytes_max_}});
    if (settings_.compression.encoding == federated::Compression::kTopK)
      update.set("keep", settings_.compression.keep);
    if (const auto& privacy = settings_.privacy;
        privacy && privacy->mode == federated::PrivacyMode::kLocal)
      update.set("noise",
                 Json::object({{"clip", privacy->clip},
                               {"deviation", privacy::local_deviation(privacy->noise_multiplier,
                                                                      privacy->clip)}}));
    out.set("update", std::move(update));
  }
  out.set("train", std::move(train_json));
  return out;
}

Verdict CoordinatorImpl::judge(const std::string& client, std::string_view task,
                               const Sha256& digest) {
  const MutexLock lock(mutex_);
  return machine_->judge(client, task, digest.hex());
}

federated::UpdateLimits CoordinatorImpl::limits_for(const std::string& task,
                                                    const RoundMachine::TrainTask& train) const {
  federated::UpdateLimits out;
  out.task = task;
  out.base = Sha256::parse(train.model).value();
  if (options_.settings.bounds.norm_max > 0) out.norm_max = options_.settings.bounds.norm_max;
  return out;
}

Result<Coordinator::Submitted> CoordinatorImpl::submit(const std::string& client,
                                                       const std::string& task,
                                                       const Sha256& digest, const os::Path& file) {
  std::optional<RoundMachine::TrainTask> train;
  {
    const MutexLock lock(mutex_);
    const Verdict verdict = machine_->judge(client, task, digest.hex());
    train = machine_->train_task(task);
    if (verdict != Verdict::kWanted || !train)
      return Submitted{train ? verdict : Verdict::kLate, "", std::nullopt};
  }
  return accept(client, task, digest,
                UpdateReader::open(fs_, file, layout_, limits_for(task, *train)),
                [&](const StoredUpdate& stored) { return store_->accept(file, stored); });
}

Result<Coordinator::Submitted> CoordinatorImpl::submit_bytes(const std::string& client,
                                                             const std::string& task,
                                                             std::string bytes) {
  const Sha256 digest = Sha256::of(bytes);
  std::optional<RoundMachine::TrainTask> train;
  {
    const MutexLock lock(mutex_);
    const Verdict verdict = machine_->judge(client, task, digest.hex());
    train = machine_->train_task(task);
    if (verdict != Verdict::kWanted || !train)
      return Submitted{train ? verdict : Verdict::kLate, "", std::nullopt};
  }
  auto opened = UpdateReader::of(bytes, layout_, limits_for(task, *train));
  return accept(client, task, digest, std::move(opened),
                [&](const StoredUpdate& stored) { return store_->accept_bytes(bytes, stored); });
}

Result<Coordinator::Submitted> CoordinatorImpl::accept(
    const std::string& client, const std::string& task, const Sha256& digest,
    UpdateReader::Opened opened, const std::function<Status(const StoredUpdate&)>& place) {
  std::optional<federated::Refusal> refusal;
  AcceptedUpdate update{.client = client, .digest = digest.hex()};
  if (!opened.ok()) {
    refusal = opened.error();
    if (refusal->reason == RefusalReason::kIo) return refusal->error;
  } else {
    const std::unique_ptr<UpdateReader> reader = std::move(*opened);  // unmapped before it moves
    update.samples = static_cast<double>(reader->info().samples);
    update.norm = reader->norm();
    update.control_norm = reader->control_norm();
    update.metrics = bounded_metrics(reader->info().metrics);
    const auto loss = update.metrics.find("loss");
    if (needs_loss_ && (loss == update.metrics.end() || loss->second <= 0))
      refusal = {RefusalReason::kFormat,
                 Error(Code::kInvalid, "the rule needs the metric loss, above 0")};
    if (needs_control_ && !reader->has_control())
      refusal = {RefusalReason::kFormat,
                 Error(Code::kInvalid, "the rule needs changes of control variates")};
  }
  if (refusal) {
    log::warn("update refused", {{"client", client},
                                 {"task", task},
                                 {"reason", to_string(refusal->reason)},
                                 {"error", refusal->error}});
    {
      const MutexLock lock(mutex_);
      note(machine_->refused(
          client, task, std::string(to_string(refusal->reason)) + ": " + refusal->error.message(),
          clock_.now()));
    }
    TRY_VOID(persist());
    notify();
    return Submitted{Verdict::kRefused, refusal->error.message(), refusal->reason};
  }
  StoredUpdate stored{.client = client, .digest = digest};
  {
    const MutexLock lock(mutex_);
    stored.round = machine_->accepting_round();
    const auto train = machine_->train_task(task);
    if (!train) return Submitted{Verdict::kLate, "", std::nullopt};
    update.trained_on = train->round;
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

Status CoordinatorImpl::refuse(const std::string& client, const std::string& task,
                               const Error& why) {
  log::warn("update refused", {{"client", client}, {"task", task}, {"error", why}});
  {
    const MutexLock lock(mutex_);
    note(machine_->refused(client, task, why.message(), clock_.now()));
  }
  TRY_VOID(persist());
  notify();
  return {};
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
  {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.now();
    find_lost(now);
    note(machine_->time_passed(now));
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
  const MutexLock lock(mutex_);
  std::optional<SteadyTime> due = machine_->due();
  for (const auto& [client, at] : seen_) {
    const SteadyTime lost = at + options_.lost_after + std::chrono::milliseconds(1);
    due = due ? std::min(*due, lost) : lost;
  }
  if (machine_->phase() == Phase::kAggregating) due = clock_.now();
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
  std::int64_t round = 0;
  Settings settings;
  Beside beside;
  std::uint64_t wanted = 1;  // clients of the round
  {
    const MutexLock lock(mutex_);
    updates = machine_->updates();
    round = machine_->round();
    settings = settings_;
    beside = beside_;
    wanted = static_cast<std::uint64_t>(std::max<std::int64_t>(1, machine_->target()));
  }
  const SteadyTime begin = clock_.now();
  std::vector<std::unique_ptr<UpdateReader>> readers;
  std::vector<federated::Contribution> contributions;
  for (const AcceptedUpdate& update : updates) {
    federated::UpdateLimits limits;
    limits.checked = {update.norm, update.control_norm};
    TRY(const Sha256 digest, Sha256::parse(update.digest));
    auto opened = UpdateReader::open(
        fs_, store_->path_of(StoredUpdate{round, update.client, digest}), layout_, limits);
    if (!opened.ok()) return opened.error().error.context("update of " + update.client);
    readers.push_back(std::move(*opened));
    const auto loss = update.metrics.find("loss");
    contributions.push_back({.client = update.client,
                             .samples = readers.back()->info().samples,
                             .loss = loss == update.metrics.end() ? 0 : loss->second,
                             .update = readers.back().get(),
                             .scale = federated::staleness_scale(static_cast<std::uint64_t>(
                                 std::max<std::int64_t>(0, round - update.trained_on)))});
  }
  TRY(Weights weights, this->weights());
  if (!rule_usable_) TRY_VOID(reset_rule());
  rule_usable_ = false;
  federated::ApplyOptions apply = {.threads = options_.threads,
                                   .bounds = bounds_of(settings.bounds)};
  if (beside.privacy) {
    TRY(apply.privacy, beside.privacy->mean(round, wanted));
    // Limits that depend on other clients' updates would have a sensitivity of their own.
    apply.bounds = {.norm_max = 0, .norm_factor = 0, .weight_factor = 0, .weight_max = 0};
  }
  auto applied = rule_->apply(ctx, std::move(contributions), weights.values(), apply);
  readers.clear();
  if (!applied.ok()) {
    if (applied.error().code() == Code::kUnavailable) {
      log::warn("too few updates for the rule", {{"round", round}, {"error", applied.error()}});
      rule_usable_ = true;
      const MutexLock lock(mutex_);
      note(machine_->too_few(clock_.now()));
      return {};
    }
    Error error = applied.error();
    // The set of updates is final, so another attempt has the same result.
    return std::move(error).as_terminal(error.code() != Code::kCancelled &&
                                        error.code() != Code::kTimeout);
  }
  if (beside.privacy) TRY_VOID(beside.privacy->spend(round, wanted, applied->whole));
  TRY(const std::string bytes, weights.to_safetensors());
  TRY(const Sha256 result, store_->put(bytes));
  TRY(const std::string rule_state, rule_->state());
  TRY(const Sha256 rule_digest, store_->put(rule_state));
  beside.rule = rule_digest.hex();
  if (needs_control_ && !rule_->control().empty()) {
    const auto values = rule_->control();
    const Weights control(layout_, std::vector<float>(values.begin(), values.end()));
    TRY(const std::string control_bytes, control.to_safetensors());
    TRY(const Sha256 control_digest, store_->put(control_bytes));
    beside.control = control_digest.hex();
  }
  std::map<std::string, std::string> quarantined;
  for (const auto& one : applied->quarantined) {
    quarantined.emplace(one.client, std::string(to_string(one.reason)) + ": " + one.message);
    log::warn("update quarantined", {{"client", one.client},
                                     {"round", round},
                                     {"reason", to_string(one.reason)},
                                     {"message", one.message}});
  }
  codec::Sha256Stream chain;
  chain.update(beside.updates);
  for (const AcceptedUpdate& update : updates)
    if (!quarantined.contains(update.client)) chain.update(update.digest);
  beside.updates = chain.finish().hex();
  rule_usable_ = true;
  const MutexLock lock(mutex_);
  beside_ = beside;
  end_at_budget();
  note(machine_->aggregated(result.hex(), quarantined, clock_.now()));
  log::info("round aggregated",
            {{"round", round},
             {"updates", updates.size() - quarantined.size()},
             {"model", result.hex()},
             {"seconds", std::chrono::duration<double>(clock_.now() - begin).count()}});
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
  TRY(const Sha256 digest, Sha256::parse(hex));
  TRY(std::string bytes, store_->read(digest));
  TRY(Weights out, Weights::parse(std::move(bytes)));
  if (!(out.layout() == *layout_))
    return Error(Code::kCorrupt, "the stored model has another layout");
  return out;
}

std::string CoordinatorImpl::metrics_csv() {
  const MutexLock lock(mutex_);
  std::set<std::string> training, evaluation;
  for (const auto& record : machine_->history()) {
    for (const auto& [name, value] : record.training) training.insert(name);
    for (const auto& [name, value] : record.evaluation) evaluation.insert(name);
  }
  const auto quoted = [](const std::string& name) {
    if (name.find_first_of(",\"\r\n") == std::string::npos) return name;
    std::string out = "\"";
    for (const char c : name) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    return out + "\"";
  };
  std::string out = "round,attempts,clients,updates,refused,samples,seconds,model";
  for (const std::string& name : training) out += "," + quoted("train_" + name);
  for (const std::string& name : evaluation) out += "," + quoted(name);
  out += "\n";
  const auto number = [](double value) { return codec::write_json(Json(value)); };
  for (const auto& record : machine_->history()) {
    for (const std::int64_t value :
         {record.round, record.attempts, record.clients, record.updates, record.refused})
      out += std::to_string(value) + ",";
    out += number(record.samples) + "," + number(record.seconds) + "," + record.model;
    const auto cell = [&](const Metrics& metrics, const std::string& name) {
      const auto at = metrics.find(name);
      out += at == metrics.end() ? "," : "," + number(at->second);
    };
    for (const std::string& name : training) cell(record.training, name);
    for (const std::string& name : evaluation) cell(record.evaluation, name);
    out += "\n";
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<Coordinator>> Coordinator::open(Options options, const ModelFile& model,
                                                       os::Path directory, os::FileSystem& fs) {
  auto out = std::make_unique<CoordinatorImpl>(std::move(options), model, fs);
  TRY_VOID(out->prepare(model, std::move(directory)));
  return std::unique_ptr<Coordinator>(std::move(out));
}

}  // namespace varda::aggregator
