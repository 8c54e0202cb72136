// CascadeBook: the records of all models of the node (cascade_record.h), kept in the journal, and when what of them is told.
//
// Nothing is told before it is on the disk, so a database that is behind what the other end has was lost or put back. A record that
// is no longer wanted stays for a while: its model may come again while the same server runs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/cascade_record.h"
#include "agent/complaint.h"
#include "agent/journal.h"
#include "base/clock.h"
#include "base/context.h"
#include "base/mutex.h"
#include "base/rng.h"

namespace varda::agent {

/// Thread-safe.
class CascadeBook {
 public:
  static constexpr std::size_t kFormerMax = 128;  // records that nobody wants any more

  struct Options {
    std::chrono::milliseconds report_period{10000};  // between reports that only count
    std::chrono::milliseconds save_period{5000};     // between writes of counts, and after one that failed
    const Clock* clock = nullptr;                    // null: the machine's
  };
  /// `told` is called from step() when a report is another one than before. The rest outlives the book.
  CascadeBook(Options options, Journal& journal, Rng& rng, std::function<void()> told);

  /// Takes up what is in the journal; once.
  void load();
  /// The models with tiers, by key, and whose they are: another word is another service under the name.
  void set_wanted(const std::map<std::string, std::string>& wanted);
  /// What the other end has, by key: the first time counts.
  void meet(std::map<std::string, codec::Json> live);
  /// What a server answered. Of models that are not wanted it is left out; what is no answer, or makes no sense, is logged.
  void take(const std::string& key, const Result<codec::Json>& answer);

  /// What to tell, by key.
  std::map<std::string, codec::Json> reports() const;

  /// Works until the context is done.
  void run(const Context& ctx);
  /// Saves what is not on the disk yet. Not while another thread is in run() or step().
  void save_all();
  /// Saves and tells what is due; what run() does between two waits. One thread.
  void step();
  std::optional<SteadyTime> due() const;

 private:
  struct Entry {
    CascadeRecord record;
    bool met = false;
    std::int64_t former = 0;  // seconds of the wall clock when it was last wanted; 0: it is
    bool dirty = true;        // other than what the journal has
    Counts saved;             // the sums that it has
    codec::Json told;         // null: nothing yet
    codec::Json told_rest;    // of the record, as it was told
    Counts told_counts;
    SteadyTime told_at = SteadyTime::min();
    Complaint complaint;
  };
  enum class News { kNone, kCounts, kUrgent };
  static News news(const Entry& entry);
  SteadyTime tell_at(const Entry& entry) const;
  SteadyTime save_at(const Entry& entry) const REQUIRES(mutex_);
  std::optional<SteadyTime> next() const REQUIRES(mutex_);
  void save(const std::vector<std::string>& keys);
  void meet(const std::string& key, Entry& entry) REQUIRES(mutex_);
  void begin(Entry& entry, const std::string& of) REQUIRES(mutex_);
  void forget_oldest() REQUIRES(mutex_);
  std::string draw_epoch() { return rng_.uuid(); }

  const Options options_;
  const Clock& clock_;
  Journal& journal_;
  Rng& rng_;
  const std::function<void()> told_;
  mutable Mutex mutex_;
  std::condition_variable_any woken_;
  bool poked_ GUARDED_BY(mutex_) = false;
  std::map<std::string, Entry> entries_ GUARDED_BY(mutex_);
  std::vector<std::string> gone_ GUARDED_BY(mutex_);  // to be taken from the journal
  std::optional<std::map<std::string, codec::Json>> live_ GUARDED_BY(mutex_);
  SteadyTime saved_at_ GUARDED_BY(mutex_) = SteadyTime::min();
};

}  // namespace varda::agent
