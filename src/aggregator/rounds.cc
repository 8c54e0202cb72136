// The thread that runs the rounds of a job: deadlines, lost clients, the next model, secure sums.
#include <algorithm>
#include <utility>

#include "aggregator/internal/coordinator_impl.h"
#include "base/log.h"
#include "base/rng.h"
#include "codec/digest.h"
#include "federated/masked_update.h"
#include "federated/rules.h"

namespace varda::aggregator {
namespace {

using codec::Json;
using codec::Sha256;
using federated::AcceptedUpdate;
using federated::MaskedForm;
using federated::MaskedMean;
using federated::RefusalReason;
using federated::RoundMachine;
using federated::Settings;
using federated::Step;
using federated::UpdateReader;
using Phase = RoundMachine::Phase;

constexpr std::chrono::milliseconds kFirstPause{200}, kLongestPause{10'000};
constexpr std::chrono::milliseconds kSecureStepMin{1000}, kSecureStepMax{60'000};
constexpr int kSecureStepsInDeadline = 5;

/// The step before.
std::string_view ended_step(SecureRound::Step present) {
  if (present == SecureRound::Step::kShares) return "keys";
  return present == SecureRound::Step::kOpened ? "shares" : "opened";
}

/// Raw keys of the signers in the settings, which are checked.
std::set<std::string> raw_signers(const federated::SecureSettings& secure) {
  std::set<std::string> out;
  for (const std::string& signer : secure.signers)
    out.insert(codec::unbase64(signer).value_or(std::string()));
  return out;
}

}  // namespace

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
  secure_weight_max_ = federated::secure_weight_max(settings_);
  secure_.emplace(
      *task,
      SecureRound::Options{.sum = {.id = secure_sum_name(job_, *task),
                                   .length = layout_->size() + federated::kMaskedTail},
                           .neighbours = static_cast<std::size_t>(settings_.secure->neighbours),
                           .seed = system_rng().next(),
                           .step_time = step_time,
                           .trusted_signers = raw_signers(*settings_.secure)},
      clock_.now());
}

void CoordinatorImpl::advance_secure() {
  if (!secure_ || machine_->phase() != Phase::kTraining) return;
  const auto least = static_cast<std::size_t>(machine_->quorum());
  const auto closed = secure_->advance(machine_->working(), least, clock_.now());
  if (closed.ok() && !*closed) return;
  std::map<std::string, std::string> refused;
  for (const auto& [client, why] : secure_->refused()) {
    log::warn("client left out of secure aggregation",
              {{"task", secure_->task()}, {"client", client}, {"reason", why}});
    refused.emplace(client, "bad_shares: " + why);
  }
  note(machine_->refuse_keys(refused, clock_.now()));
  if (!closed.ok())
    return repeat_round(RoundMachine::RepeatCause::kFailed, closed.error().message());
  log::info("step of secure aggregation ended", {{"task", secure_->task()},
                                                 {"step", ended_step(secure_->step())},
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
  if (!put.ok() && put.error().code() == Code::kUnauthenticated) {
    // The neighbours would leave the round because of these keys.
    note(machine_->refused(client, task, "bad_signature: " + put.error().message(), clock_.now()));
    return Error(Code::kForbidden, put.error().message());
  }
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
    const auto file =
        federated::read_masked(fs_, path, task, base, layout_->size() + federated::kMaskedTail);
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

}  // namespace varda::aggregator
