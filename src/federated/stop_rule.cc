#include "federated/stop_rule.h"

#include "codec/json.h"

namespace varda::federated {

std::optional<StopRule::End> StopRule::holds(const StopSettings& settings, const Metrics& metrics) {
  const auto at = metrics.find(settings.metric);
  if (at == metrics.end()) return std::nullopt;
  const double value = at->second;
  const std::string shown = settings.metric + " is " + codec::write_json(value);
  if ((settings.at_least && value >= *settings.at_least) ||
      (settings.at_most && value <= *settings.at_most))
    return End{"StopMetric", shown};
  const bool better = !best || (settings.lower_is_better() ? value < *best : value > *best);
  if (better) best = value;
  without_better = better ? 0 : without_better + 1;
  if (settings.patience == 0 || without_better < settings.patience) return std::nullopt;
  return End{"Patience", shown + ", not better than " + codec::write_json(*best) + " for " +
                             std::to_string(without_better) + " evaluations"};
}

}  // namespace varda::federated
