// Triggers: the rules by which a training starts.
//
//   trigger:
//     condition: {metric: num_of_samples, operator: ">=", threshold: 60}
//     timer: {start: "02:00", end: "24:00"}
//     any: [{hardShare: 0.2}, {drift: {method: psi, threshold: 0.25}}]
//     cooldownSeconds: 3600
//     quotaPerDay: 4
//
// All members of a rule must hold. The built-in metrics are num_of_samples (new samples) and
// hard_share; the others are those of the served model. Cool-down, quota and minimumSamples belong
// to the round machine, and a manual start skips them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"
#include "incremental/condition.h"
#include "incremental/drift.h"
#include "incremental/time_window.h"

namespace varda::incremental {

enum class DriftMethod : std::uint8_t { kPsi, kKolmogorovSmirnov, kPageHinkley };

struct DriftRule {
  DriftMethod method = DriftMethod::kPsi;
  // psi: fires at this index or above. ks: fires at this probability or below. pageHinkley: fires
  // at this statistic or above.
  double threshold = 0.25;

  friend bool operator==(const DriftRule&, const DriftRule&) = default;
};

struct Rule {
  std::optional<Condition> condition;
  std::optional<std::int64_t> samples;  // new samples, at least
  std::optional<double> hard_share;     // of the last window of answers, at least
  std::optional<DriftRule> drift;
  std::optional<TimeWindow> timer;
  std::vector<Rule> any;  // one must hold; empty: no demand
  std::vector<Rule> all;

  static constexpr std::size_t kDepthMax = 4, kItemsMax = 16;
  friend bool operator==(const Rule&, const Rule&) = default;
};

struct Trigger {
  Rule rule;  // without members: always holds
  std::chrono::milliseconds check_period = std::chrono::seconds(60);  // at least so often
  std::chrono::milliseconds cooldown{0};  // from the end of a round to the next start
  std::int64_t quota_per_day = 0;         // starts within 24 hours; 0: no limit
  std::int64_t minimum_samples = 1;       // without so many new samples no automatic start
  std::int64_t window = 200;              // answers; for hard share and drift
  double delta = 0.005;                   // of the Page-Hinkley test
  bool manual = false;                    // no automatic start

  static constexpr std::int64_t kQuotaMax = 48;
  friend bool operator==(const Trigger&, const Trigger&) = default;
};

/// kInvalid: the message names the member, with `path` before it.
Result<Trigger> parse_trigger(const codec::Json& json, const std::string& path);
codec::Json to_json(const Trigger& trigger);

/// The numbers that rules read.
struct TriggerFacts {
  WallTime now{};
  std::optional<std::int64_t> samples;  // new ones; absent: not counted yet
  codec::Json metrics;                  // of the served model
  std::optional<double> hard_share;     // absent: no window is full yet
  Histogram reference, recent;          // of scores; empty: not full yet
  PageHinkley page_hinkley;
};

struct RuleResult {
  bool holds = false;
  std::string reason;             // a sentence's part, for both results
  std::optional<WallTime> opens;  // the next start of a closed window
};
RuleResult check(const Rule& rule, const TriggerFacts& facts);

/// The rule reads hard shares or scores.
bool needs_answers(const Rule& rule);

}  // namespace varda::incremental
