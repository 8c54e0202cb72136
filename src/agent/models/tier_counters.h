// TierCounters: a model's tier statistics (docs/design/017), summed over all starts of its server.
// Pure.
//
// A server counts from its own start and names its instance. The record remembers the counters of
// the last few instances, so that it adds each request once, in any order of answers. Older
// instances are merged into a base sum. The sums belong to an epoch. A new epoch starts at zero
// whenever sums might shrink or count requests twice, for example after a lost or restored
// database. Within an epoch sums never shrink. Over all epochs the sums never exceed the real
// number of requests. Exception: the last answer of a stopping server arrives after the disk that
// knew the server was lost.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codec/json.h"

namespace varda::agent::models {

/// Counters by RFC 6901 pointer, such as "/called/cloud".
using Counts = std::map<std::string, std::int64_t>;

/// A server's answer, validated.
struct TierAnswer {
  static constexpr std::size_t kCountersMax = 512;
  static constexpr std::size_t kRestBytesMax = 16 << 10;

  std::string instance;
  Counts counters;   // zeros at the third level or deeper are left out
  codec::Json rest;  // the other members; latencies are rounded to two digits
};
/// kInvalid: not an answer about tiers, or above a limit that our server respects.
Result<TierAnswer> read_tier_answer(const codec::Json& answer);

/// `rest` without details that never trigger a report: latencies, the start of a degradation, and
/// HalfOpen (treated as Open).
codec::Json noteworthy(const codec::Json& rest);
/// The part of `rest` that triggers an immediate report. Human-readable messages of errors and
/// degradations are excluded.
codec::Json urgent(const codec::Json& rest);

/// If `live` has the same epoch, raises each counter of `report` to at least the value in `live`.
void keep_ahead(codec::Json& report, const codec::Json& live);

class TierCounters {
 public:
  static constexpr std::size_t kInstancesMax = 4;  // older ones are merged into base_

  /// The caller draws epochs. `of` is the uid of the service; counts of different services are
  /// never mixed.
  TierCounters(std::string epoch, std::string of) : epoch_(std::move(epoch)), of_(std::move(of)) {}
  /// Reads the output of to_json(); nothing if it is malformed.
  static std::optional<TierCounters> from_json(const codec::Json& json);
  codec::Json to_json() const;

  const std::string& epoch() const { return epoch_; }
  const std::string& of() const { return of_; }
  const codec::Json& rest() const { return rest_; }  // null: no answer yet

  void take(TierAnswer answer);
  /// Compares with `live`, the cluster's report at the start of this process (null: no report). If
  /// `live` has an unknown epoch, or higher counts than were loaded, this record lacks some counts.
  /// Then `epoch` starts, with the first answer of this process as its zero.
  void reconcile_with_server(const codec::Json& live, std::string epoch);
  /// Starts `epoch` at zero.
  void begin(std::string epoch, std::string of);

  Counts sums() const;
  /// The report for the cluster: the sums, and the service's uid as `uid`. Null before the first
  /// answer.
  codec::Json report(const Counts& sums) const;

 private:
  void count_from(const Counts& zero);

  std::string epoch_;
  std::string before_;  // the previous epoch; the cluster may still hold it
  std::string of_;
  std::vector<std::pair<std::string, Counts>> instances_;  // most recently answered first
  Counts base_;                                            // added to the sums of the instances;
                                                           // negative if the epoch started later
  bool skip_ = false;                                      // the next answer is the epoch's zero
  codec::Json rest_;
  // State of this process, not persisted.
  Counts loaded_;
  std::optional<Counts> first_;  // the sums after its first answer
};

}  // namespace varda::agent::models
