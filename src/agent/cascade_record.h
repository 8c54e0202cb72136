// CascadeRecord: what a model's server said of its tiers (docs/design/017), its counters summed up over all its starts. Pure.
//
// A server counts from its start, and says under which instance. The record remembers how far it saw the last few instances, so
// that it adds each of their requests once, in whatever order they answer, and keeps what older ones came to as a sum. The sums
// have an epoch: a new one begins at zero when sums might otherwise go back or be counted twice, as after a database that was lost
// or put back. Within an epoch sums never shrink, and over all epochs together they never exceed what happened
// (but for a server that is ended, and whose last answer comes when the disk that knew it has been lost).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codec/json.h"

namespace varda::agent {

/// Counters by the members that lead to them, as an RFC 6901 pointer: "/asked/cloud".
using Counts = std::map<std::string, std::int64_t>;

/// What a server answered, looked through.
struct CascadeAnswer {
  static constexpr std::size_t kCountersMax = 512;
  static constexpr std::size_t kRestBytesMax = 16 << 10;

  std::string instance;
  Counts counters;   // zeros of reasons, below the third name, left out
  codec::Json rest;  // the other members as they came, with latencies rounded to two digits
};
/// kInvalid: it is none, or has more of something than a server of ours says.
Result<CascadeAnswer> read_cascade(const codec::Json& answer);

/// `rest` without what is never told by itself: latencies, since when it is degraded, and that a breaker tries again (HalfOpen is
/// Open).
codec::Json noteworthy(const codec::Json& rest);
/// Of that, what is told at once: not what errors and degradations say for people.
codec::Json urgent(const codec::Json& rest);

/// Of a report about to be written: where the other end has its epoch already, no counter less than there.
void keep_ahead(codec::Json& report, const codec::Json& live);

class CascadeRecord {
 public:
  static constexpr std::size_t kInstancesMax = 4;  // that are told apart; older ones only stand in the sum

  /// Epochs are drawn by the caller. `of`: whose tiers these are; others' counts are not mixed.
  CascadeRecord(std::string epoch, std::string of) : epoch_(std::move(epoch)), of_(std::move(of)) {}
  /// As to_json() wrote it; nothing: that is none.
  static std::optional<CascadeRecord> from_json(const codec::Json& json);
  codec::Json to_json() const;

  const std::string& epoch() const { return epoch_; }
  const std::string& of() const { return of_; }
  const codec::Json& rest() const { return rest_; }  // null: nothing was said yet

  void take(CascadeAnswer answer);
  /// What the other end had of this when the process began, null for nothing. If it had an epoch unknown here, or more than this
  /// record was loaded with, it has counts that this record does not know of: `epoch` begins with what the first answer of this
  /// process said, or says, as zero.
  void meet(const codec::Json& live, std::string epoch);
  /// `epoch` begins here.
  void begin(std::string epoch, std::string of);

  Counts sums() const;
  /// The report upstream: the sums, and as `uid` the service that they belong to. Null before the first answer.
  codec::Json report(const Counts& sums) const;

 private:
  void count_from(const Counts& zero);

  std::string epoch_;
  std::string before_;  // the epoch that this one followed: the other end may not have heard of the change
  std::string of_;
  std::vector<std::pair<std::string, Counts>> instances_;  // the one that answered last in front
  Counts base_;                                            // what to add to theirs; below zero where an epoch began later
  bool skip_ = false;                                      // the next answer is where the epoch begins
  codec::Json rest_;
  // Of this process.
  Counts loaded_;
  std::optional<Counts> first_;  // the sums after its first answer
};

}  // namespace varda::agent
