// Which dataset is counted next, and when. No threads, no clock, no files: times come in, decisions go out.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>

#include "base/clock.h"

namespace varda::agent {

struct DatasetTimes {
  std::chrono::milliseconds quiet{200};     // without a change, before it is counted
  std::chrono::milliseconds busy_max{600};  // from the first change, though there is no quiet
  std::chrono::milliseconds poll{1000};     // between looks at a file whose changes nobody tells of
  std::chrono::milliseconds poll_folder{std::chrono::seconds(10)};
  std::chrono::milliseconds look{
      std::chrono::minutes(1)};  // where changes are told: what is missed all the same (writes by mmap, a mount)
  std::chrono::milliseconds look_folder{std::chrono::hours(1)};
  std::chrono::milliseconds recount{std::chrono::hours(24)};  // between counts of every byte
  std::chrono::milliseconds retry_first{1000};                // after a read that failed, doubling
  std::chrono::milliseconds retry_max{std::chrono::minutes(5)};
};

/// Not thread-safe.
class DatasetSchedule {
 public:
  using Id = std::uint64_t;
  enum class Work {
    kLook,     // whether it is as it was, and count it if not
    kCount,    // something happened: count what is new
    kRecount,  // read every byte: it is time, or that was never done, or failed
  };
  struct Job {
    Id id = 0;
    Work work = Work::kLook;
  };

  explicit DatasetSchedule(DatasetTimes times) : times_(times) {}

  /// Counted as soon as possible. `recount`: its own period; 0: the usual one. `age`: how long ago every byte was read; nothing:
  /// never.
  void add(Id id, std::chrono::seconds recount, std::optional<Duration> age, SteadyTime now);
  void set_recount(Id id, std::chrono::seconds recount);
  void remove(Id id) { entries_.erase(id); }
  /// Something happened to it. Nothing for who is not there.
  void changed(Id id, SteadyTime now);

  /// What to do now; the one that waits longest. It is then busy until done().
  std::optional<Job> take(SteadyTime now);
  /// When take() has something; nothing: not before something happens.
  std::optional<SteadyTime> next() const;

  struct Done {
    enum class Result {
      kNothing,    // a look that found it as it was
      kCounted,    // or is not there, or will not do: waits for a change
      kPortion,    // there is more to count; others first
      kUnreadable  // tried again later
    };
    Result result = Result::kCounted;
    bool whole = false;    // every byte was read
    bool folder = false;   // looking is counting
    bool watched = false;  // its changes are told
    Duration took{};
  };
  void done(Id id, const Done& done, SteadyTime now);
  /// Whether something happened to it since take() gave it, or the first portion of it.
  bool changed_meanwhile(Id id) const;
  /// How long ago every byte was read; nothing: never.
  std::optional<Duration> age(Id id, SteadyTime now) const;

 private:
  struct Entry {
    Duration recount{};
    std::optional<SteadyTime> whole;  // when every byte was read
    std::optional<SteadyTime> first_change, last_change;
    SteadyTime look;
    SteadyTime rest;  // not before: who counts for long leaves room for others
    Work working = Work::kLook;
    bool unfinished = false;     // goes on with that
    bool keeps_changes = false;  // between its portions: of a folder, what was looked at is not looked at again
    Duration took{};             // its portions so far
    int failures = 0;
    bool busy = false;
  };
  Duration recount_of(std::chrono::seconds recount) const;
  struct Due {
    SteadyTime at;
    Work work;
  };
  std::optional<Due> due(const Entry& entry) const;

  const DatasetTimes times_;
  std::map<Id, Entry> entries_;
};

}  // namespace varda::agent
