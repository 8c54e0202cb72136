#include "agent/models/tier_counter_store.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace varda::agent::models {
namespace {

using codec::Json;

const std::string kPrefix = "joint/";

}  // namespace

TierCounterStore::TierCounterStore(Options options, core::StateStore& state_store, Rng& rng,
                                   std::function<void()> published)
    : options_(options),
      clock_(options.clock != nullptr ? *options.clock : system_clock()),
      state_store_(state_store),
      rng_(rng),
      published_(std::move(published)) {}

void TierCounterStore::load() {
  const auto stored = state_store_.entries(kPrefix);
  if (!stored.ok()) {
    log::error("tier counters cannot be read, starting from zero", {{"error", stored.error()}});
    return;
  }
  const MutexLock lock(mutex_);
  for (const auto& [name, json] : *stored) {
    auto record = TierCounters::from_json(json);
    if (!record) {
      log::error("tier counters of a model cannot be read, starting from zero",
                 {{"model", name.substr(kPrefix.size())}});
      continue;
    }
    Entry entry{
        .record = std::move(*record), .former = json["former"].as_integer(), .dirty = false};
    entry.saved = entry.record.sums();
    // The report of a previous run is restored, and needs no new report.
    if (entry.former == 0) {
      entry.published = entry.record.report(entry.saved);
      entry.reported_rest = entry.record.rest();
      entry.reported_counts = entry.saved;
    }
    entries_.emplace(name.substr(kPrefix.size()), std::move(entry));
  }
}

void TierCounterStore::set_wanted(const std::map<std::string, std::string>& wanted) {
  const MutexLock lock(mutex_);
  for (const auto& [key, of] : wanted) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) {
      Entry& entry =
          entries_.emplace(key, Entry{.record = TierCounters(draw_epoch(), of)}).first->second;
      if (live_) reconcile_with_server(key, entry);
      continue;
    }
    Entry& entry = found->second;
    if (entry.former == 0 && entry.record.of() == of) continue;
    begin(entry, of);
    entry.former = 0;
    entry.published = entry.reported_rest = Json();
  }
  const std::int64_t now =
      std::chrono::duration_cast<std::chrono::seconds>(clock_.wall().time_since_epoch()).count();
  for (auto& [key, entry] : entries_) {
    if (entry.former != 0 || wanted.contains(key)) continue;
    entry.former = std::max<std::int64_t>(now, 1);
    entry.dirty = true;
    entry.published = Json();
  }
  forget_oldest();
  wakeup_.notify();
}

void TierCounterStore::forget_oldest() {
  for (;;) {
    std::size_t former = 0;
    auto oldest = entries_.end();
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      if (at->second.former == 0) continue;
      ++former;
      if (oldest == entries_.end() || at->second.former < oldest->second.former) oldest = at;
    }
    if (former <= kFormerMax) return;
    removed_.push_back(oldest->first);
    entries_.erase(oldest);
  }
}

void TierCounterStore::reconcile_with_server(std::map<std::string, Json> live) {
  const MutexLock lock(mutex_);
  if (live_) return;
  live_ = std::move(live);
  for (auto& [key, entry] : entries_) reconcile_with_server(key, entry);
  wakeup_.notify();
}

void TierCounterStore::reconcile_with_server(const std::string& key, Entry& entry) {
  if (std::exchange(entry.met, true)) return;
  const auto found = live_->find(key);
  const std::string before = entry.record.epoch();
  entry.record.reconcile_with_server(found == live_->end() ? Json() : found->second, draw_epoch());
  if (entry.record.epoch() == before) return;
  log::warn(
      "local tier counters are older than the cluster's (restored or lost disk), starting a new "
      "epoch",
      {{"model", key}});
  entry.dirty = true;
  entry.saved.clear();  // the saved sums and the last report belong to the old epoch
  entry.published = entry.record.report(entry.saved);
  entry.reported_counts.clear();
}

void TierCounterStore::begin(Entry& entry, const std::string& of) {
  entry.record.begin(draw_epoch(), of);
  entry.dirty = true;
  entry.saved.clear();
}

void TierCounterStore::take(const std::string& key, const Result<Json>& fetched) {
  auto answer = fetched.ok() ? read_tier_answer(*fetched) : Result<TierAnswer>(fetched.error());
  const MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second.former != 0) return;
  Entry& entry = found->second;
  if (entry.log_throttle.should_log(answer.ok() ? "" : answer.error().message(), clock_.now()))
    log::warn("tier statistics of a model server rejected",
              {{"model", key}, {"error", answer.error()}});
  if (!answer.ok()) return;
  const auto before = next();
  const Json previous = entry.dirty ? Json() : entry.record.to_json();
  entry.record.take(std::move(*answer));
  if (entry.record.sums().size() > 2 * TierAnswer::kCountersMax) begin(entry, entry.record.of());
  if (!entry.dirty) entry.dirty = entry.record.to_json() != previous;
  const auto after = next();
  if (after == before) return;
  wakeup_.notify();
}

TierCounterStore::Update TierCounterStore::updated(const Entry& entry) {
  const Json& rest = entry.record.rest();
  if (entry.former != 0 || rest.is_null()) return Update::kNone;
  if (entry.published.is_null() || urgent(entry.reported_rest) != urgent(rest))
    return Update::kUrgent;
  return entry.record.sums() != entry.reported_counts ||
                 noteworthy(entry.reported_rest) != noteworthy(rest)
             ? Update::kCounts
             : Update::kNone;
}

SteadyTime TierCounterStore::report_at(const Entry& entry) const {
  switch (updated(entry)) {
    case Update::kNone:
      return SteadyTime::max();
    case Update::kUrgent:
      return SteadyTime::min();
    case Update::kCounts:
      break;
  }
  return entry.reported_at == SteadyTime::min() ? SteadyTime::min()
                                                : entry.reported_at + options_.report_period;
}

// Counters are saved before each report; other changes at most once per save_period.
SteadyTime TierCounterStore::save_at(const Entry& entry) const {
  if (!entry.dirty) return SteadyTime::max();
  const SteadyTime regular =
      saved_at_ == SteadyTime::min() ? SteadyTime::min() : saved_at_ + options_.save_period;
  return entry.record.sums() == entry.saved ? regular : std::min(regular, report_at(entry));
}

std::optional<SteadyTime> TierCounterStore::next() const {
  SteadyTime out = removed_.empty() ? SteadyTime::max() : SteadyTime::min();
  for (const auto& [key, entry] : entries_) out = std::min({out, report_at(entry), save_at(entry)});
  return out == SteadyTime::max() ? std::nullopt : std::optional(out);
}

std::optional<SteadyTime> TierCounterStore::due() const {
  const MutexLock lock(mutex_);
  return next();
}

std::map<std::string, Json> TierCounterStore::reports() const {
  const MutexLock lock(mutex_);
  std::map<std::string, Json> out;
  for (const auto& [key, entry] : entries_)
    if (!entry.published.is_null()) out.emplace(key, entry.published);
  return out;
}

void TierCounterStore::save(const std::vector<std::string>& keys) {
  std::map<std::string, Json> values;
  std::map<std::string, std::pair<Json, Counts>> written;
  {
    const MutexLock lock(mutex_);
    for (const std::string& key : std::exchange(removed_, {})) values[kPrefix + key] = Json();
    for (const std::string& key : keys) {
      const Entry& entry = entries_.at(key);
      Json json = entry.record.to_json();
      written[key] = {json, entry.record.sums()};
      if (entry.former != 0) json.set("former", entry.former);
      values[kPrefix + key] = std::move(json);
    }
    saved_at_ = clock_.now();
  }
  if (values.empty()) return;
  if (const Status done = state_store_.put_all(values); !done.ok()) {
    log::warn("tier counters not persisted, reporting the last persisted ones",
              {{"error", done.error()}});
    return;
  }
  const MutexLock lock(mutex_);
  for (auto& [key, what] : written) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) continue;
    found->second.dirty = found->second.record.to_json() != what.first;
    found->second.saved = std::move(what.second);
  }
}

void TierCounterStore::step() {
  std::vector<std::string> unsaved;
  {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.now();
    bool due = !removed_.empty();
    for (const auto& [key, entry] : entries_) {
      due = due || save_at(entry) <= now;
      if (entry.dirty) unsaved.push_back(key);  // one write for all, if any is due
    }
    if (!due) unsaved.clear();
  }
  if (!unsaved.empty()) save(unsaved);
  bool published = false;
  {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.now();
    for (auto& [key, entry] : entries_) {
      if (report_at(entry) > now) continue;
      Json report = entry.record.report(entry.saved);
      entry.reported_at = now;
      entry.reported_rest = entry.record.rest();
      entry.reported_counts = entry.saved;
      published = published || report != entry.published;
      entry.published = std::move(report);
    }
  }
  if (published) published_();
}

runtime::Task TierCounterStore::task() {
  return {.name = "tiers",
          .due = [this] { return due(); },
          .step = [this](const Context&) { step(); },
          .wakeup = &wakeup_};
}

void TierCounterStore::save_all() {
  std::vector<std::string> unsaved;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, entry] : entries_)
      if (entry.dirty) unsaved.push_back(key);
  }
  save(unsaved);
}

}  // namespace varda::agent::models
