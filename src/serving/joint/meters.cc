#include "serving/joint/meters.h"

namespace varda::serving::joint {

TierMeters::TierMeters(metrics::Registry& registry, const std::string& model,
                       const std::string& tier)
    : answered(registry.counter("varda_joint_answered_total", "Requests that the tier answered.",
                                {{"model", model}, {"tier", tier}})),
      seconds(registry.histogram("varda_joint_seconds", "Duration of the tier's answered calls.",
                                 metrics::latency_buckets(), {{"model", model}, {"tier", tier}})),
      breaker_state(registry.gauge(
          "varda_joint_breaker_state",
          "Breaker state: 0 calls the tier, 1 tries the tier, 2 does not call the tier.",
          {{"model", model}, {"tier", tier}})) {}

Meters::Meters(metrics::Registry& registry, const std::string& model)
    : registry_(registry),
      model_(model),
      inferences_(registry.counter("varda_joint_inferences_total",
                                   "Requests that any tier answered.", {{"model", model}})),
      hard_(registry.counter("varda_joint_hard_total",
                             "Answered requests that a policy classified as hard examples.",
                             {{"model", model}})),
      bytes_sent_(registry.counter("varda_joint_sent_bytes_total",
                                   "Bytes of bodies sent to later tiers.", {{"model", model}})) {}

std::shared_ptr<TierMeters> Meters::tier(const std::string& name) {
  return std::make_shared<TierMeters>(registry_, model_, name);
}

void Meters::count(const tiers::Summary& summary, const tiers::Route& route,
                   const std::vector<std::shared_ptr<TierMeters>>& tiers,
                   std::uint64_t bytes_sent) {
  if (bytes_sent > 0) bytes_sent_.add(static_cast<double>(bytes_sent));
  if (summary.end == tiers::Summary::End::kAnswered) {
    inferences_.add();
    if (summary.hard) hard_.add();
    tiers[summary.tier]->answered.add();
  }
  for (std::size_t i = 0; i < summary.tier_count; ++i) {
    const tiers::Summary::Tier& tier = summary.tiers[i];
    if (tier.answered)
      tiers[i]->seconds.observe(std::chrono::duration<double>(tier.latency).count());
    if (!tier.reason) continue;
    const bool error = is_error(*tier.reason);
    registry_
        .counter(error ? "varda_joint_errors_total" : "varda_joint_not_called_total",
                 error ? "Calls that a tier did not answer."
                       : "Requests for which a tier could not be called.",
                 {{"model", model_},
                  {"tier", route.tiers[i].name},
                  {"reason", std::string(to_string(*tier.reason))}})
        .add();
  }
}

double breaker_number(tiers::Breaker::State state) {
  switch (state) {
    case tiers::Breaker::State::kClosed:
      return 0;
    case tiers::Breaker::State::kHalfOpen:
      return 1;
    case tiers::Breaker::State::kOpen:
      return 2;
  }
  return 0;
}

}  // namespace varda::serving::joint
