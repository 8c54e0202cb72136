// The comparison of a candidate with its base, as a worker reports it.
//
// Two forms:
//
// - our trainer: counts by slice and class, as in docs/design/033-incremental-learning.md
// - workers of users: an object of metrics. A value is a number of the candidate, a pair
//   [candidate, base] of numbers, or a pair of lists of numbers.
//
// The bytes come from a worker, so counts that contradict each other are refused.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json.h"

namespace varda::incremental {

struct ClassCounts {
  std::string name;
  std::int64_t samples = 0, base_right = 0, candidate_right = 0;
  friend bool operator==(const ClassCounts&, const ClassCounts&) = default;
};

struct Slice {
  std::string name;  // "frozen", "newest", or another
  std::int64_t samples = 0, base_right = 0, candidate_right = 0;
  std::int64_t only_base = 0, only_candidate = 0;  // right in one model only
  std::vector<ClassCounts> classes;                // may be empty
  // Values of a metric for each sample, in the same order for both; may be empty.
  struct Values {
    std::vector<double> base, candidate;
    friend bool operator==(const Values&, const Values&) = default;
  };
  std::map<std::string, Values> values;
  friend bool operator==(const Slice&, const Slice&) = default;
};
inline constexpr std::string_view kFrozenSlice = "frozen";
inline constexpr std::string_view kNewestSlice = "newest";

struct Pair {
  double base = 0, candidate = 0;
  friend bool operator==(const Pair&, const Pair&) = default;
};

/// Samples that the round took.
struct Selected {
  std::int64_t train = 0, evaluate = 0;
  std::int64_t total() const { return train + evaluate; }
  friend bool operator==(const Selected&, const Selected&) = default;
};

struct Comparison {
  std::int64_t round = 0;  // 0: absent
  std::optional<Selected> selected;
  std::vector<Slice> slices;                    // empty in the form of users
  codec::Json base_metrics, candidate_metrics;  // objects; numbers or lists of numbers
  std::optional<Pair> milliseconds, bytes;

  friend bool operator==(const Comparison&, const Comparison&) = default;

  static constexpr std::size_t kTextBytesMax = 4U << 20U;
  static constexpr std::size_t kSlicesMax = 64, kClassesMax = 4096, kMetricsMax = 64;
  static constexpr std::size_t kListMax = 4096;      // numbers of one metric
  static constexpr std::size_t kValuesMax = 20'000;  // numbers of `values` for one model
  static constexpr std::int64_t kSamplesMax = 1'000'000'000;
};

/// An object with `slices` has the form of our trainer. kInvalid: the message names the member.
Result<Comparison> parse_comparison(const codec::Json& json);
Result<Comparison> parse_comparison_text(std::string_view text);
codec::Json to_json(const Comparison& comparison);

/// The metrics of the candidate, and NAME_delta (candidate minus base) for each that both have.
/// accuracy is computed from the slices if the worker reports none.
codec::Json metrics_with_deltas(const Comparison& comparison);

}  // namespace varda::incremental
