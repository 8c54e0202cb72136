#include "federated/internal/bounds.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace varda::federated {
namespace {

constexpr std::size_t kMedianUpdatesMin = 3;  // one outlier of two moves the median

std::string number(double value) {
  char out[32];
  std::snprintf(out, sizeof out, "%.4g", value);
  return out;
}

struct Fault {
  RefusalReason reason;
  std::string message;
};

using Check = std::function<std::optional<Fault>(const Contribution&)>;

void remove_if_faulty(std::vector<Contribution>& contributions, std::vector<Quarantined>& out,
                      const Check& check) {
  std::erase_if(contributions, [&](const Contribution& contribution) {
    std::optional<Fault> fault = check(contribution);
    if (fault) out.push_back({contribution.client, fault->reason, std::move(fault->message)});
    return fault.has_value();
  });
}

/// The limit for norms of one kind, or for losses; empty: none.
std::optional<Fault> above(double norm, double median, const Bounds& bounds, const char* what) {
  if (bounds.norm_max > 0 && norm > bounds.norm_max)
    return Fault{RefusalReason::kNorm, std::string(what) + " " + number(norm) +
                                           " is above the limit " + number(bounds.norm_max)};
  // With a median of 0 most clients changed nothing: any change would be above.
  if (bounds.norm_factor > 0 && median > 0 && norm > bounds.norm_factor * median)
    return Fault{RefusalReason::kNorm, std::string(what) + " " + number(norm) + " is above " +
                                           number(bounds.norm_factor) + " times the median " +
                                           number(median)};
  return std::nullopt;
}

}  // namespace

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

std::vector<Quarantined> quarantine(std::vector<Contribution>& contributions, const Bounds& bounds,
                                    const Requirements& requirements) {
  std::vector<Quarantined> out;
  remove_if_faulty(contributions, out, [&](const Contribution& c) -> std::optional<Fault> {
    if (!std::isfinite(c.update->norm()) || !std::isfinite(c.update->control_norm()))
      return Fault{RefusalReason::kNotFinite, "the update is not finite"};
    if (!(c.scale > 0 && c.scale <= 1) || c.samples == 0)
      return Fault{RefusalReason::kFormat, "samples and scale must be above 0, the scale up to 1"};
    if (requirements.loss && !(std::isfinite(c.loss) && c.loss > 0))
      return Fault{RefusalReason::kFormat, "the loss must be a number above 0"};
    if (requirements.loss && requirements.usable_loss && !requirements.usable_loss(c))
      return Fault{RefusalReason::kFormat, "the loss " + number(c.loss) + " is out of range"};
    if (requirements.control && !c.update->has_control())
      return Fault{RefusalReason::kFormat, "the update has no control variates"};
    return std::nullopt;
  });
  std::vector<double> norms, control_norms, losses;
  for (const Contribution& c : contributions) {
    norms.push_back(c.update->norm());
    control_norms.push_back(c.update->control_norm());
    losses.push_back(c.loss);
  }
  const bool has_median = contributions.size() >= kMedianUpdatesMin;
  const double median = has_median ? median_of(std::move(norms)) : 0;
  const double control_median = has_median ? median_of(std::move(control_norms)) : 0;
  const double loss_median = has_median ? median_of(std::move(losses)) : 0;
  // The rule weighs by a power of the loss, so one large claim would own the model.
  const Bounds loss_bounds{.norm_max = 0, .norm_factor = bounds.norm_factor};
  remove_if_faulty(contributions, out, [&](const Contribution& c) {
    std::optional<Fault> fault = above(c.update->norm(), median, bounds, "norm");
    if (!fault && requirements.control)
      fault = above(c.update->control_norm(), control_median, bounds, "norm of control variates");
    if (!fault && requirements.loss) fault = above(c.loss, loss_median, loss_bounds, "loss");
    return fault;
  });
  std::sort(out.begin(), out.end(),
            [](const Quarantined& a, const Quarantined& b) { return a.client < b.client; });
  return out;
}

std::vector<double> capped(std::vector<double> samples, const SampleLimits& limits) {
  double limit = limits.most > 0 ? limits.most : HUGE_VAL;
  if (limits.factor > 0 && samples.size() >= kMedianUpdatesMin)
    limit = std::min(limit, limits.factor * median_of(samples));
  for (double& one : samples) one = std::min(one, limit);
  return samples;
}

std::vector<double> capped_samples(std::span<const Contribution> contributions,
                                   const Bounds& bounds) {
  std::vector<double> out;
  for (const Contribution& c : contributions) out.push_back(static_cast<double>(c.samples));
  return capped(std::move(out), {.factor = bounds.weight_factor, .most = bounds.weight_max});
}

}  // namespace varda::federated
