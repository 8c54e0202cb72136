// Limits against poisoned updates.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "federated/rules.h"

namespace varda::federated {

/// The median of finite numbers; of an even number the mean of the two in the middle. 0 for none.
double median_of(std::vector<double> values);

struct Requirements {
  bool loss = false, control = false;
  /// The rule can compute with the loss. Asked only for losses above 0.
  std::function<bool(const Contribution&)> usable_loss = {};
};

/// Moves the contributions that break a limit from `contributions` to the result.
std::vector<Quarantined> quarantine(std::vector<Contribution>& contributions, const Bounds& bounds,
                                    const Requirements& requirements);

/// Samples count up to `factor` times their median, and up to `most`. 0: no limit.
struct SampleLimits {
  double factor = 0, most = 0;
};
std::vector<double> capped(std::vector<double> samples, const SampleLimits& limits);
/// The samples that count, one number for each contribution.
std::vector<double> capped_samples(std::span<const Contribution> contributions,
                                   const Bounds& bounds);

}  // namespace varda::federated
