// The gate: decides from a comparison whether the candidate may replace the base.
//
//   GateVerdict verdict = judge(gate, conditions, comparison);
//   verdict.message    "accuracy rose by 0.144 (p = 1.2e-13, mid-p McNemar test), needed 0.01"
//
// | check        | refuses if                                                                    |
// |--------------|-------------------------------------------------------------------------------|
// | gain         | the metric rises by less than minimumGain, over all slices together           |
// | significance | the gain may be chance; with minimumGain < 0: the loss is no chance | |
// forgetting   | accuracy on known classes of the frozen slice falls by more than forgettingMax| |
// slices       | accuracy on a slice falls by more than sliceDropMax                           | |
// classes      | accuracy on a class falls by more than classDropMax                           | |
// latency      | candidate slower than latencyMsMax or latencyFactorMax times the base         | |
// size         | candidate larger than bytesMax or bytesFactorMax times the base               | |
// condition    | a condition of deploySpec.trigger does not hold                               |
//
// A class is known if the base has at least half of its samples right. Without known classes
// forgetting concerns the whole slice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "codec/json.h"
#include "incremental/comparison.h"
#include "incremental/condition.h"
#include "incremental/significance.h"

namespace varda::incremental {

struct Gate {
  std::string metric = "accuracy";
  enum class Goal : std::uint8_t { kMaximize, kMinimize } goal = Goal::kMaximize;
  double minimum_gain = 0;
  // Largest probability of chance. Absent: 0.05 if the comparison permits a test, otherwise no
  // test. Present and not testable: the gate refuses. 1: no test.
  std::optional<double> significance;
  McNemarTest test = McNemarTest::kMidP;
  std::int64_t resamples = 2000;  // of the bootstrap
  std::int64_t seed = 0;
  double forgetting_max = 0.02, slice_drop_max = 0.02, class_drop_max = 0.1;
  std::int64_t class_samples_min = 10;  // smaller classes are not judged
  std::int64_t samples_min = 1;         // in all slices; fewer: refused
  std::optional<double> latency_ms_max, latency_factor_max, bytes_max, bytes_factor_max;

  friend bool operator==(const Gate&, const Gate&) = default;
};

/// kInvalid: the message names the member, with `path` before it.
Result<Gate> parse_gate(const codec::Json& json, const std::string& path);
codec::Json to_json(const Gate& gate);

struct GateCheck {
  std::string name;  // of the table above; "class 7", "slice newest"
  bool passed = false;
  std::optional<double> value, bound;
  std::string text;  // a sentence's part
  friend bool operator==(const GateCheck&, const GateCheck&) = default;
};

struct GateVerdict {
  bool passed = false;
  std::string reason;   // GatePassed, GainTooSmall, NotSignificant, Forgetting, SliceWorse,
                        // ClassWorse, TooSlow, TooLarge, ConditionNotMet, NotComparable
  std::string message;  // one sentence
  std::optional<double> base, candidate, gain, probability, forgetting;
  std::vector<GateCheck> checks;  // at most kChecksMax, failed ones first

  static constexpr std::size_t kChecksMax = 16;
  friend bool operator==(const GateVerdict&, const GateVerdict&) = default;
};
codec::Json to_json(const GateVerdict& verdict);
/// Reads to_json(); members of other types count as absent.
GateVerdict verdict_of(const codec::Json& json);

/// Absent `gate`: only the conditions decide.
GateVerdict judge(const std::optional<Gate>& gate, const std::vector<Condition>& conditions,
                  const Comparison& comparison);

}  // namespace varda::incremental
