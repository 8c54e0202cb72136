// The settings of an incremental learning job, as its spec has them.
//
//   Result<Settings> settings = parse_settings(spec);   // of an IncrementalLearningJob
//
// The API kind's validation calls parse_settings(); the controller reads no rule by itself. Members
// that other rooms read (worker templates, names of objects) are ignored here.
//
// | member of the spec                                            | read into                     |
// |---------------------------------------------------------------|-------------------------------|
// | trainSpec.trigger                                             | Trigger                       |
// | evalSpec.gate                                                 | Gate                          |
// | evalSpec.template, evalSpec.workerSpec                        | separate_evaluation           |
// | deploySpec.trigger {condition, timer}                         | deploy_conditions, deploy_timer
// | | deploySpec.trial, deploySpec.rollback, deploySpec.rollout     | Trial, Rollback, Rollout | |
// trainSpec.retry {attempts, backoffSeconds, deadlineSeconds}   | Retry                         |
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "codec/json.h"
#include "incremental/gate.h"
#include "incremental/trigger.h"

namespace varda::incremental {

struct Retry {
  std::int64_t attempts = 3;  // of one stage
  // Doubles with each attempt, and with each failed round in a row, up to an hour.
  std::chrono::milliseconds backoff = std::chrono::seconds(10);
  std::chrono::milliseconds deadline{0};  // of an attempt; 0: none, so that a node may be cut off

  static constexpr std::chrono::milliseconds kBackoffMax = std::chrono::hours(1);
  friend bool operator==(const Retry&, const Retry&) = default;
};

struct Trial {
  enum class Mode : std::uint8_t { kShadow, kCanary } mode = Mode::kShadow;
  double share = 1;  // of the requests; canary: 0.1
  std::int64_t answers = 200;
  std::optional<double> agreement_min;  // shadow: share of equal answers
  std::optional<double> latency_factor_max;
  std::chrono::milliseconds deadline{0};  // refuses without enough answers; 0: waits

  friend bool operator==(const Trial&, const Trial&) = default;
};
std::string_view to_string(Trial::Mode mode);

/// Limits of a version that serves, in the trial too.
struct Rollback {
  double error_rate = 0.05;               // failures by answers, above
  std::optional<double> hard_share_rise;  // above the share of the version before
  std::optional<Condition> condition;     // goes back if it holds: {metric: live, operator: <, …}
  std::int64_t answers = 50;              // that a judgement needs
  std::int64_t crashes = 3;               // of the server in this version; 0: any number
  // The version is watched for so long after the round. 0: until the next one.
  std::chrono::milliseconds probation = std::chrono::hours(24);
  bool automatic = true;

  friend bool operator==(const Rollback&, const Rollback&) = default;
};

struct Rollout {
  std::chrono::milliseconds pause{0};  // between two nodes
  friend bool operator==(const Rollout&, const Rollout&) = default;
};

struct Settings {
  Trigger trigger;
  Retry retry;
  bool separate_evaluation = false;  // the stage Eval has a worker of its own
  // Absent if the user has conditions and no gate. Otherwise the gate's defaults apply.
  std::optional<Gate> gate = Gate{};
  std::vector<Condition> deploy_conditions;
  std::optional<TimeWindow> deploy_timer;
  std::optional<Trial> trial;
  Rollback rollback;
  Rollout rollout;

  friend bool operator==(const Settings&, const Settings&) = default;
};

/// kInvalid: the message begins with the member's path in the spec.
Result<Settings> parse_settings(const codec::Json& spec);
/// A spec that parse_settings() reads as the same settings.
codec::Json to_json(const Settings& settings);

}  // namespace varda::incremental
