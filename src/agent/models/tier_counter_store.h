// TierCounterStore: persists the TierCounters of all models on this node, and schedules their
// reports.
//
// The store reports only counts that are already on disk. If the cluster knows more than the disk,
// the database was lost or restored. A record that is no longer wanted is kept for a while, because
// its model may return while the same server still runs.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/log_throttle.h"
#include "agent/core/state_store.h"
#include "agent/models/tier_counters.h"
#include "base/clock.h"
#include "base/context.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "runtime/task.h"

namespace varda::agent::models {

/// Thread-safe.
class TierCounterStore {
 public:
  static constexpr std::size_t kFormerMax = 128;  // limit for unwanted records

  struct Options {
    std::chrono::milliseconds report_period{10000};  // between reports that change only counters
    std::chrono::milliseconds save_period{
        5000};                     // between writes of counters, and after a failed write
    const Clock* clock = nullptr;  // null: the system clock
  };
  /// step() calls `published` when a report has changed. All references outlive the store.
  TierCounterStore(Options options, core::StateStore& state_store, Rng& rng,
                   std::function<void()> published);

  /// Loads the records from the state store. Call it once.
  void load();
  /// Sets the models with tiers, as key -> uid of the service. A different uid means a different
  /// service of the same name.
  void set_wanted(const std::map<std::string, std::string>& wanted);
  /// The reports that the cluster holds, by key. Only the first call has an effect.
  void reconcile_with_server(std::map<std::string, codec::Json> live);
  /// Ingests a server's answer. Answers for unwanted models are ignored; errors and invalid answers
  /// are logged.
  void take(const std::string& key, const Result<codec::Json>& answer);

  /// The current reports, by key.
  std::map<std::string, codec::Json> reports() const;

  runtime::Task task();
  /// Saves all unsaved records. Not while another thread is in step().
  void save_all();
  /// Saves and reports whatever is due. One thread.
  void step();
  std::optional<SteadyTime> due() const;

 private:
  struct Entry {
    TierCounters record;
    bool met = false;
    std::int64_t former = 0;    // wall-clock seconds when it was last wanted; 0: wanted now
    bool dirty = true;          // differs from the state store
    Counts saved;               // sums in the state store
    codec::Json published;      // last report; null: not reported yet
    codec::Json reported_rest;  // the record's rest at that report
    Counts reported_counts;
    SteadyTime reported_at = SteadyTime::min();
    core::LogThrottle log_throttle;
  };
  enum class Update { kNone, kCounts, kUrgent };
  static Update updated(const Entry& entry);
  SteadyTime report_at(const Entry& entry) const;
  SteadyTime save_at(const Entry& entry) const REQUIRES(mutex_);
  std::optional<SteadyTime> next() const REQUIRES(mutex_);
  void save(const std::vector<std::string>& keys);
  void reconcile_with_server(const std::string& key, Entry& entry) REQUIRES(mutex_);
  void begin(Entry& entry, const std::string& of) REQUIRES(mutex_);
  void forget_oldest() REQUIRES(mutex_);
  std::string draw_epoch() { return rng_.uuid(); }

  const Options options_;
  const Clock& clock_;
  core::StateStore& state_store_;
  Rng& rng_;
  const std::function<void()> published_;
  mutable Mutex mutex_;
  runtime::Wakeup wakeup_;
  std::map<std::string, Entry> entries_ GUARDED_BY(mutex_);
  std::vector<std::string> removed_ GUARDED_BY(mutex_);  // to delete from the state store
  std::optional<std::map<std::string, codec::Json>> live_ GUARDED_BY(mutex_);
  SteadyTime saved_at_ GUARDED_BY(mutex_) = SteadyTime::min();
};

}  // namespace varda::agent::models
