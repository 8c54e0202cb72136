#include "aggregator/coordinator.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "aggregator/internal/coordinator_impl.h"
#include "aggregator/round_table.h"
#include "base/log.h"
#include "base/rng.h"

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
constexpr std::uint64_t kHeaderBytes = 1 << 20;  // room for the header of an update

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

}  // namespace

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
                        .job = job_,
                        .secure_weight_max = secure_ ? secure_weight_max_ : 0},
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
                                                       const Sha256& digest,
                                                       const UploadedFile& file) {
  return accept(
      client, task, digest,
      [&](const RoundMachine::TrainTask& train) {
        return check_->file(fs_, file.path, file.norm, task, Sha256::parse(train.model).value());
      },
      [&](const StoredUpdate& stored) { return store_->accept(file.path, stored); });
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

Result<std::unique_ptr<Coordinator>> Coordinator::open(Options options, const ModelFile& model,
                                                       os::Path directory, os::FileSystem& fs) {
  auto out = std::make_unique<CoordinatorImpl>(std::move(options), model, fs);
  TRY_VOID(out->prepare(model, std::move(directory)));
  return std::unique_ptr<Coordinator>(std::move(out));
}

}  // namespace varda::aggregator
