// One round of incremental learning, as the controller assigns it.
//
//   {"round": 3, "attempt": 1, "stage": "Train", "consumed": [[1, 2]], "refused": [],
//    "trainProb": 0.8, "seed": 1, "base": {"version": "4"}, "baseline": {"version": "4"}}
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "codec/json.h"

namespace varda::training {

/// Rounds by number, as ranges, so that thousands of rounds need little memory.
class RoundSet {
 public:
  static constexpr std::size_t kRangesMax = 4096;

  bool contains(std::int64_t round) const;
  void add(std::int64_t first, std::int64_t last);
  void add(std::int64_t round) { add(round, round); }
  void remove(std::int64_t round);
  bool empty() const { return ranges_.empty(); }
  /// Ascending, without common or adjoining rounds.
  const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges() const { return ranges_; }
  bool operator==(const RoundSet&) const = default;

 private:
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges_;
};

struct IncrementalTask {
  enum class Stage : std::uint8_t { kTrain, kEval };

  std::int64_t round = 1, attempt = 1;
  Stage stage = Stage::kTrain;
  // Rounds with samples that are used: accepted ones, and those that the gate or a trial refused.
  // Samples of refused rounds are never replayed. All other rounds give their samples back.
  RoundSet consumed, refused;
  double train_probability = 0.8;  // trainProb: the part of the new samples that trains
  std::uint64_t seed = 1;
  std::string base_version, baseline_version;  // "": unknown
};

/// Members of `consumed` and `refused` are rounds, or pairs [first, last]. `base` and `baseline`
/// are objects with `version`, or the version. Unknown members are ignored, because the controller
/// may be newer. kInvalid: a member is wrong; the message has the name.
Result<IncrementalTask> parse_incremental_task(const codec::Json& json);
codec::Json to_json(const IncrementalTask& task);
codec::Json to_json(const RoundSet& rounds);

std::string_view to_string(IncrementalTask::Stage stage);

}  // namespace varda::training
