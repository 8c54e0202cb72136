// StopRule: ends a job before its last round, by a metric of the evaluations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "federated/round_record.h"
#include "federated/settings.h"

namespace varda::federated {

/// A value; the members are the state between evaluations.
struct StopRule {
  struct End {
    std::string reason, message;
  };
  /// Takes the means of an evaluation. Nothing: the job continues.
  std::optional<End> holds(const StopSettings& settings, const Metrics& metrics);

  std::optional<double> best;
  std::int64_t without_better = 0;  // evaluations in a row
};

}  // namespace varda::federated
