// Decides which dataset is counted next, and when. No threads, clock or files: the caller passes
// times in.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>

#include "base/clock.h"

namespace varda::agent::datasets {

struct Times {
  std::chrono::milliseconds quiet{200};     // without a change, before a count
  std::chrono::milliseconds busy_max{600};  // from the first change, even if changes continue
  std::chrono::milliseconds poll{1000};     // between looks at a file without a watch
  std::chrono::milliseconds poll_folder{std::chrono::seconds(10)};
  std::chrono::milliseconds look{
      std::chrono::minutes(1)};  // of a watched file, for missed changes (mmap, a mount)
  std::chrono::milliseconds rescan_folder{std::chrono::hours(1)};
  std::chrono::milliseconds recount{std::chrono::hours(24)};  // between counts of every byte
  std::chrono::milliseconds retry_first{1000};                // after a failed read, doubling
  std::chrono::milliseconds retry_max{std::chrono::minutes(5)};
};

/// Not thread-safe.
class Schedule {
 public:
  using Id = std::uint64_t;
  enum class Work {
    kLook,     // check for a change; count if there is one
    kCount,    // a change was noticed: count the new part
    kRecount,  // read every byte: the period is over, or the last whole count is missing or failed
  };
  struct Job {
    Id id = 0;
    Work work = Work::kLook;
  };

  explicit Schedule(Times times) : times_(times) {}

  /// Adds a dataset, to be counted as soon as possible. `recount`: its period; 0: the default.
  /// `age`: time since every byte was read; nothing: never.
  void add(Id id, std::chrono::seconds recount, std::optional<Duration> age, SteadyTime now);
  void set_recount(Id id, std::chrono::seconds recount);
  void remove(Id id) { entries_.erase(id); }
  /// The dataset changed. Unknown ids are ignored.
  void changed(Id id, SteadyTime now);

  /// The job that has waited longest. The dataset is then busy until done().
  std::optional<Job> take(SteadyTime now);
  /// The time when take() returns a job. Nothing: not before add() or changed().
  std::optional<SteadyTime> next() const;

  struct Done {
    enum class Result {
      kNothing,    // a look found no change
      kCounted,    // counted, missing, or unusable: waits for a change
      kPortion,    // more to count; other datasets first
      kUnreadable  // retried later
    };
    Result result = Result::kCounted;
    bool whole = false;    // every byte was read
    bool folder = false;   // a look at it is a full count
    bool watched = false;  // a watch reports its changes
    Duration took{};
  };
  void done(Id id, const Done& done, SteadyTime now);
  /// Whether the dataset changed since take() returned it, or since the first portion of that
  /// count.
  bool changed_meanwhile(Id id) const;
  /// Time since every byte was read; nothing: never.
  std::optional<Duration> age(Id id, SteadyTime now) const;

 private:
  struct Entry {
    Duration recount{};
    std::optional<SteadyTime> whole;  // when every byte was read
    std::optional<SteadyTime> first_change, last_change;
    SteadyTime look;
    SteadyTime not_before;  // long counts pause, so that others are counted
    Work working = Work::kLook;
    bool unfinished = false;          // the next portion continues `working`
    bool keeps_change_times = false;  // of a folder, between portions: each entry is visited once
    Duration took{};                  // total of the portions so far
    int failures = 0;
    bool busy = false;
  };
  Duration recount_of(std::chrono::seconds recount) const;
  struct Due {
    SteadyTime at;
    Work work;
  };
  std::optional<Due> due(const Entry& entry) const;

  const Times times_;
  std::map<Id, Entry> entries_;
};

}  // namespace varda::agent::datasets
