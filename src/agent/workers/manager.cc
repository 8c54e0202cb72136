#include "agent/workers/manager.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "codec/digest.h"
#include "meta/object.h"

namespace varda::agent::workers {
namespace {

using codec::Json;

constexpr std::string_view kRecords = "workers/";
// The greatest sequence in any report of a removed worker. The same worker may return to this node.
// The operator accepts only greater sequences from it.
constexpr std::string_view kNumbers = "worker-numbers";
constexpr std::size_t kRevisionDigits = 16;

Error not_expected(const std::string& key) {
  return {Code::kUnauthenticated, "this node does not expect worker " + key +
                                      " any more, or the worker's file has a new token"};
}
Error stopping() { return {Code::kUnavailable, "the agent is stopping"}; }

/// Equal for equal assignments, whatever the order of their members, also after a restart.
std::string revision_of(const api::EdgeWorker& spec) {
  return codec::Sha256::of(spec.uid + "\n" + spec.owner + "\n" +
                           codec::write_json(codec::sorted(spec.assignment)))
      .hex()
      .substr(0, kRevisionDigits);
}

}  // namespace

Manager::Manager(Options options, os::FileSystem& fs, core::StateStore& state_store, Rng& rng)
    : options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : system_clock()),
      state_store_(state_store),
      tokens_(fs, options_.directory, rng) {}

Manager::Worker* Manager::find(const Caller& caller) {
  const auto at = workers_.find(caller.name.key());
  return at != workers_.end() && at->second.spec.uid == caller.uid ? &at->second : nullptr;
}

void Manager::note_change() {
  if (std::exchange(changed_, true)) return;
  wakeup_.notify();
}

void Manager::changed(Worker& worker) {
  if (worker.changes++ == worker.saved) wakeup_.notify();
  note_change();
}

void Manager::artifacts_changed() {
  const MutexLock lock(mutex_);
  note_change();
}

// ---- the work list

void Manager::apply(const core::WorkList& list) {
  const MutexLock lock(mutex_);
  desired_.emplace();
  desired_->id = list.id;
  desired_->spec.workers = list.spec.workers;
  wakeup_.notify();
}

void Manager::adopt(const api::EdgeNodeStatus& live) {
  std::map<std::string, api::EdgeWorkerReport> reports;
  for (const api::EdgeWorkerReport& report : live.workers) reports.emplace(report.key, report);
  const MutexLock lock(mutex_);
  live_ = std::move(reports);
  live_is_new_ = true;
  wakeup_.notify();
}

void Manager::load() {
  if (const auto numbers = state_store_.get(std::string(kNumbers)); numbers.ok()) {
    numbers_used_ = (*numbers)["used"].as_integer();
  } else {
    log::error("greatest sequence of removed workers cannot be read, sequences start at 1",
               {{"error", numbers.error()}});
  }
  apply_work_list();
  make_tokens();
}

void Manager::apply_work_list() {
  std::optional<core::WorkList> desired;
  bool live_is_new = false;
  std::vector<std::string> unknown;
  {
    const MutexLock lock(mutex_);
    desired.swap(desired_);
    live_is_new = std::exchange(live_is_new_, false);
    if (!desired && !live_is_new) return;
    if (desired) {
      auto& workers = desired->spec.workers;
      if (workers.size() > kWorkersMax) workers.resize(kWorkersMax);
      for (const api::EdgeWorker& spec : workers) {
        const auto at = workers_.find(spec.key);
        if (at == workers_.end() || at->second.spec.uid != spec.uid) unknown.push_back(spec.key);
      }
    }
  }
  std::map<std::string, State> records;
  for (const std::string& key : unknown) {
    auto stored = state_store_.get(std::string(kRecords) + key);
    if (!stored.ok())
      log::error("worker record cannot be read", {{"worker", key}, {"error", stored.error()}});
    if (!stored.ok()) continue;
    if (auto state = State::from_json(*stored)) records.emplace(key, std::move(*state));
  }

  std::vector<Call> calls;
  std::vector<Adopted> adopted;
  {
    const MutexLock lock(mutex_);
    if (desired) calls = replace_workers(std::move(*desired), std::move(records));
    adopted = adopt_live(live_is_new);
  }
  for (const Call& call : calls) call();
  if (desired) give_owners();
  if (options_.artifacts != nullptr) {
    for (const Adopted& one : adopted) options_.artifacts->adopt(one.key, one.uid, one.files);
  }
  if (desired) give_streams();
}

void Manager::give_streams() {
  if (options_.streams == nullptr) return;
  std::vector<api::EdgeWorker> workers;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, worker] : workers_) {
      if (worker.name.name.empty()) continue;
      api::EdgeWorker one;
      one.key = key;
      one.uid = worker.spec.uid;
      one.streams = worker.spec.streams;
      workers.push_back(std::move(one));
    }
  }
  options_.streams->set_workers(workers);
  const MutexLock lock(mutex_);
  note_change();
}

void Manager::give_owners() {
  if (options_.artifacts == nullptr) return;
  std::vector<ArtifactOwner> owners;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, worker] : workers_) {
      const auto& uploads = worker.spec.uploads;
      owners.push_back({key, worker.spec.uid,
                        uploads ? static_cast<std::uint64_t>(uploads->max_bytes) : 0,
                        worker.spec.bucket});
    }
  }
  options_.artifacts->set_owners(owners);
}

std::vector<Manager::Call> Manager::replace_workers(core::WorkList list,
                                                    std::map<std::string, State> records) {
  std::map<std::string, Worker> next;
  for (api::EdgeWorker& spec : list.spec.workers) {
    Worker& worker = next[spec.key];
    const auto at = workers_.find(spec.key);
    if (at != workers_.end() && at->second.spec.uid == spec.uid) {
      worker = std::move(at->second);
      at->second.waiters.clear();
    } else {
      if (auto name = Name::parse(spec.key); name.ok()) {
        worker.name = std::move(*name);
      } else {
        worker.problem = name.error().message();
      }
      worker.state = State(spec.uid, numbers_used_);
      const auto record = records.find(spec.key);
      if (record != records.end() && record->second.uid() == spec.uid)
        worker.state = std::move(record->second);
    }
    worker.spec = std::move(spec);
    worker.revision = revision_of(worker.spec);
  }
  std::vector<Call> calls;
  for (auto& [key, worker] : workers_) {
    for (Waiter& waiter : worker.waiters)
      calls.emplace_back(
          [then = std::move(waiter.then), error = not_expected(key)] { then(error); });
    if (!next.contains(key)) swept_ = false;
  }
  if (!list_) swept_ = false;  // from previous runs
  // An observed work list is reported at once, not with the next report period.
  if (list_ != list.id) publish_after_ = SteadyTime::min();
  workers_ = std::move(next);
  list_ = std::move(list.id);
  changed_ = true;
  return calls;
}

std::vector<Manager::Adopted> Manager::adopt_live(bool is_new) {
  std::vector<Adopted> out;
  if (!live_) return out;
  for (auto& [key, worker] : workers_) {
    const auto before = worker.state.sequence();
    if (before && !is_new) continue;
    const auto at = live_->find(key);
    const bool has = at != live_->end() && at->second.uid == worker.spec.uid;
    const Json report = has ? at->second.report : Json();
    Json files = worker.state.adopt(report);
    if (!files.empty()) out.push_back({key, worker.spec.uid, std::move(files)});
    if (worker.state.sequence() != before) changed(worker);
  }
  return out;
}

void Manager::make_tokens() {
  std::vector<Caller> without;
  std::set<std::string> keys;
  {
    const MutexLock lock(mutex_);
    token_retry_.reset();
    if (!list_) return;
    for (const auto& [key, worker] : workers_) {
      if (worker.name.name.empty()) continue;
      keys.insert(key);
      if (worker.token_sha256.empty()) without.push_back({worker.name, worker.spec.uid});
    }
  }
  Status cleared;
  if (!swept_) {
    cleared = tokens_.keep_only(keys);
    auto records = state_store_.entries(std::string(kRecords));
    std::map<std::string, Json> removals;
    std::int64_t used = numbers_used_;
    if (records.ok()) {
      for (const auto& [key, record] : *records) {
        if (keys.contains(key.substr(kRecords.size()))) continue;
        removals.emplace(key, Json());
        used = std::max(used, record["sequence"].as_integer());
      }
    }
    if (used > numbers_used_) removals.emplace(kNumbers, Json::object({{"used", used}}));
    if (cleared.ok())
      cleared = records.ok() ? state_store_.put_all(removals) : Status(records.error());
    if (cleared.ok()) numbers_used_ = used;
    swept_ = cleared.ok();
    if (!cleared.ok())
      log::warn("cannot remove data of former workers, retrying", {{"error", cleared.error()}});
  }
  bool failed = !cleared.ok();
  for (const Caller& caller : without) {
    auto token = tokens_.ensure(caller.name, caller.uid);
    if (!token.ok())
      log::warn("cannot create a worker's token, retrying",
                {{"worker", caller.name.key()}, {"error", token.error()}});
    failed = failed || !token.ok();
    const MutexLock lock(mutex_);
    Worker* worker = find(caller);
    worker->problem = token.ok() ? "" : "it has no token: " + token.error().message();
    if (token.ok()) worker->token_sha256 = codec::Sha256::of(*token).hex();
    note_change();
  }
  const MutexLock lock(mutex_);
  if (failed) token_retry_ = clock_.now() + options_.retry;
}

// ---- the API

std::optional<Manager::Caller> Manager::find_by_token(std::string_view token) const {
  const std::string digest = codec::Sha256::of(token).hex();
  const MutexLock lock(mutex_);
  const Worker* found = nullptr;
  for (const auto& [key, worker] : workers_)
    if (codec::same_secret(worker.token_sha256, digest)) found = &worker;
  if (found == nullptr) return std::nullopt;
  const auto& uploads = found->spec.uploads;
  return Caller{found->name, found->spec.uid,
                uploads ? static_cast<std::uint64_t>(uploads->max_bytes) : 0};
}

Manager::Assignment Manager::assignment_of(const Worker& worker) {
  return {worker.spec.key, worker.spec.uid, worker.spec.owner, worker.revision,
          worker.spec.assignment};
}

void Manager::assignment(const Caller& caller, const std::string& after, Duration patience,
                         OnAssignment then) {
  std::vector<Call> calls;
  {
    const MutexLock lock(mutex_);
    Worker* worker = find(caller);
    if (worker == nullptr) {
      calls.emplace_back([&] { then(not_expected(caller.name.key())); });
    } else if (ended_) {
      calls.emplace_back([&] { then(stopping()); });
    } else if (worker->revision != after || patience <= Duration::zero()) {
      calls.emplace_back([&, now = assignment_of(*worker)] { then(now); });
    } else {
      if (worker->waiters.size() >= kWaitingMax) {
        calls.emplace_back([oldest = std::move(worker->waiters.front().then),
                            now = assignment_of(*worker)] { oldest(now); });
        worker->waiters.pop_front();
      }
      worker->waiters.push_back({after, clock_.now() + patience, std::move(then)});
      wakeup_.notify();
    }
  }
  for (const Call& call : calls) call();
}

Status Manager::put_progress(const Caller& caller, Json message) {
  const MutexLock lock(mutex_);
  if (ended_) return stopping();
  Worker* worker = find(caller);
  if (worker == nullptr) return not_expected(caller.name.key());
  TRY(const bool updated,
      worker->state.set_progress(std::move(message), meta::format_time(clock_.wall())));
  if (updated) changed(*worker);
  return {};
}

Status Manager::put_metrics(const Caller& caller, Json message) {
  const MutexLock lock(mutex_);
  if (ended_) return stopping();
  Worker* worker = find(caller);
  if (worker == nullptr) return not_expected(caller.name.key());
  TRY(const bool updated, worker->state.set_metrics(std::move(message)));
  if (updated) changed(*worker);
  return {};
}

void Manager::put_registration(const Caller& caller, Json message, OnPersisted then) {
  submit({caller, "", std::move(message), std::move(then)});
}

void Manager::put_result(const Caller& caller, const std::string& name, Json message,
                         OnPersisted then) {
  submit({caller, name, std::move(message), std::move(then)});
}

void Manager::submit(Unwritten one) {
  Status refused;
  {
    const MutexLock lock(mutex_);
    if (ended_) {
      refused = stopping();
    } else if (unwritten_.size() >= kUnwrittenMax) {
      refused = Error(Code::kUnavailable, "too many writes wait for the disk; try again");
    } else {
      unwritten_.push_back(std::move(one));
      wakeup_.notify();
      return;
    }
  }
  one.then(std::move(refused));
}

// ---- the disk

Status Manager::persist(const std::map<std::string, State>& states) {
  std::map<std::string, Json> records;
  for (const auto& [key, state] : states)
    records.emplace(std::string(kRecords) + key, state.to_json());
  Status persisted = state_store_.put_all(records);
  if (!records.empty() &&
      persisted.ok() == disk_refuses_) {  // logged once per change, because workers retry
    disk_refuses_ = !persisted.ok();
    if (disk_refuses_) log::warn("worker reports not persisted", {{"error", persisted.error()}});
    if (!disk_refuses_) log::info("worker reports persisted again");
  }
  // A disk that rejects writes does not silence metrics.
  const MutexLock lock(mutex_);
  for (const auto& [key, state] : states) {
    const auto at = workers_.find(key);
    if (at == workers_.end() || at->second.spec.uid != state.uid()) continue;
    if (at->second.state.set_written(state)) note_change();
  }
  return persisted;
}

Status Manager::apply(const Unwritten& one, const std::string& time, State& state, bool& updated) {
  if (one.result.empty()) {
    TRY(updated, state.set_registered(one.message, time));
  } else {
    TRY(updated, state.set_result(one.result, one.message, time));
  }
  return {};
}

void Manager::write() {
  std::deque<Unwritten> batch;
  std::vector<Status> answers;
  std::map<std::string, State> next, to_write;
  std::map<std::string, std::uint64_t> changes;
  const std::string time = meta::format_time(clock_.wall());
  {
    const MutexLock lock(mutex_);
    if (unwritten_.empty() || write_after_ > clock_.now()) return;
    batch.swap(unwritten_);
    for (const Unwritten& one : batch) {
      const std::string key = one.caller.name.key();
      Worker* worker = find(one.caller);
      if (worker == nullptr) {
        answers.emplace_back(not_expected(key));
        continue;
      }
      changes[key] = worker->changes;
      State& state = next.try_emplace(key, worker->state).first->second;
      bool updated = false;
      answers.push_back(apply(one, time, state, updated));
      if (updated) to_write[key] = {};
    }
  }
  for (auto& [key, state] : to_write) state = next.at(key);
  Status persisted = persist(to_write);
  if (!persisted.ok())
    persisted = Error(Code::kUnavailable, "the report cannot be written to this node's disk now: " +
                                              persisted.error().message());
  {
    const MutexLock lock(mutex_);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (!answers[i].ok() || !to_write.contains(batch[i].caller.name.key())) continue;
      if (!persisted.ok()) {
        answers[i] = persisted;
        continue;
      }
      // Newer state stays: the written items are applied on top of it.
      Worker* worker = find(batch[i].caller);
      bool updated = false;
      answers[i] = apply(batch[i], time, worker->state, updated);
      worker->saved = changes.at(batch[i].caller.name.key());
      note_change();
    }
    if (!to_write.empty()) write_after_ = clock_.now() + options_.sync_pause;
  }
  for (std::size_t i = 0; i < batch.size(); ++i) batch[i].then(std::move(answers[i]));
}

void Manager::save() {
  std::map<std::string, State> states;
  std::map<std::string, std::uint64_t> changes;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, worker] : workers_) {
      if (worker.changes == worker.saved) continue;
      states.emplace(key, worker.state);
      changes.emplace(key, worker.changes);
    }
  }
  if (states.empty()) return;
  const Status persisted = persist(states);
  const MutexLock lock(mutex_);
  save_after_ = clock_.now() + (persisted.ok() ? options_.save_period : options_.retry);
  if (!persisted.ok()) return;
  for (const auto& [key, change] : changes) workers_.at(key).saved = change;
}

// ---- upstream

void Manager::publish_reports() {
  struct One {
    api::EdgeWorkerReport report;
    State state;
    Json artifacts;
    std::string problem;
    std::uint64_t changes = 0;
  };
  std::vector<One> all;
  core::ListId list;
  {
    const MutexLock lock(mutex_);
    changed_ = false;
    list = list_.value_or(core::ListId());
    for (const auto& [key, worker] : workers_)
      all.push_back({{.key = key, .uid = worker.spec.uid},
                     worker.state,
                     Json::object(),
                     worker.problem,
                     worker.changes});
  }
  std::vector<std::size_t> needs;
  for (One& one : all) {
    if (options_.artifacts != nullptr)
      one.artifacts = options_.artifacts->report(one.report.key, one.report.uid);
    if (options_.streams != nullptr)
      one.report.streams = options_.streams->report(one.report.key, one.report.uid);
    one.report.report = one.state.report(2 * State::kBytesMax, one.artifacts);
    needs.push_back(codec::write_json(one.report.report).size() +
                    256);  // the space that report() reserves
  }
  const std::vector<std::size_t> rooms = share_out(needs, kReportBytesMax);
  std::map<std::string, State> numbered;
  for (std::size_t i = 0; i < all.size(); ++i) {
    One& one = all[i];
    if (rooms[i] < needs[i]) one.report.report = one.state.report(rooms[i], one.artifacts);
    // Without a known sequence number, Models are not forwarded.
    if (!one.state.sequence()) one.report.report.erase("models");
    if (one.state.pass_on(one.report.report)) numbered.emplace(one.report.key, one.state);
  }
  const Status persisted = persist(numbered);
  if (!persisted.ok()) {
    const MutexLock lock(mutex_);
    changed_ = true;
    publish_after_ = clock_.now() + options_.retry;
    return;
  }
  std::vector<api::EdgeWorkerReport> reports;
  std::string text = list.uid + " " + std::to_string(list.generation);
  {
    const MutexLock lock(mutex_);
    for (One& one : all) {
      Json& report = one.report.report;
      if (numbered.contains(one.report.key)) {
        Worker& worker = workers_.at(one.report.key);
        worker.state.pass_on(report);
        worker.saved = std::max(worker.saved, one.changes);
      }
      if (std::as_const(report).contains("models")) report.set("sequence", *one.state.sequence());
      if (!one.problem.empty()) report.set("problem", one.problem);
      text += "\n" + one.report.key + " " + one.report.uid + " " + codec::write_json(report);
      for (const api::EdgeStreamReport& stream : one.report.streams)
        text += " " + stream.name + " " + stream.address + " " + stream.message;
      reports.push_back(std::move(one.report));
    }
    const auto cost =
        std::chrono::milliseconds(1000 * text.size() / options_.report_bytes_per_second);
    publish_after_ = clock_.now() + std::max(options_.report_period, cost);
    reported_ = {std::move(list), std::move(reports)};
  }
  if (published_ == text) return;
  published_ = std::move(text);
  publish();
}

core::ListId Manager::put_report(api::EdgeNodeStatus& status,
                                 const api::EdgeNodeStatus& /*live*/) const {
  status.worker_root = options_.directory.string();
  status.worker_socket_directory = options_.socket_directory;
  status.worker_user = options_.user;
  const MutexLock lock(mutex_);
  status.workers = reported_.reports;
  return reported_.list;
}

void Manager::answer_waiters() {
  std::vector<Call> calls;
  {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.now();
    for (auto& [key, worker] : workers_) {
      for (auto at = worker.waiters.begin(); at != worker.waiters.end();) {
        if (at->after == worker.revision && at->until > now) {
          ++at;
          continue;
        }
        calls.emplace_back(
            [then = std::move(at->then), answer = assignment_of(worker)] { then(answer); });
        at = worker.waiters.erase(at);
      }
    }
  }
  for (const Call& call : calls) call();
}

// ---- driving

std::optional<SteadyTime> Manager::due() const {
  const MutexLock lock(mutex_);
  if (ended_) return std::nullopt;
  if (desired_ || live_is_new_) return SteadyTime::min();
  std::optional<SteadyTime> first = token_retry_;
  const auto at = [&](SteadyTime time) { first = std::min(first.value_or(time), time); };
  if (!unwritten_.empty()) at(write_after_);
  if (changed_) at(publish_after_);
  for (const auto& [key, worker] : workers_) {
    if (worker.changes != worker.saved) at(save_after_);
    for (const Waiter& waiter : worker.waiters) at(waiter.until);
  }
  return first;
}

void Manager::step() {
  bool list = false, save_now = false, publish_now = false;
  {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.now();
    list = desired_ || live_is_new_ || (token_retry_ && *token_retry_ <= now);
    save_now = save_after_ <= now;
    publish_now = changed_ && publish_after_ <= now;
  }
  if (list) {
    apply_work_list();
    make_tokens();
  }
  write();
  if (save_now) save();
  if (publish_now) publish_reports();
  answer_waiters();
}

void Manager::finish() {
  {
    const MutexLock lock(mutex_);
    write_after_ = SteadyTime::min();
  }
  write();
  save();
  std::vector<Call> calls;
  {
    const MutexLock lock(mutex_);
    ended_ = true;
    for (Unwritten& one : unwritten_)
      calls.emplace_back([then = std::move(one.then)] { then(stopping()); });
    unwritten_.clear();
    for (auto& [key, worker] : workers_) {
      for (Waiter& waiter : worker.waiters)
        calls.emplace_back([then = std::move(waiter.then)] { then(stopping()); });
      worker.waiters.clear();
    }
  }
  for (const Call& call : calls) call();
}

std::vector<runtime::Task> Manager::tasks() {
  return {{.name = "workers",
           .due = [this] { return due(); },
           .step = [this](const Context&) { step(); },
           .wakeup = &wakeup_}};
}

}  // namespace varda::agent::workers
