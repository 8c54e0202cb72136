#include "hosting/conditions.h"

#include <algorithm>
#include <iterator>

namespace varda::hosting {

bool is_progress(std::string_view reason) {
  static constexpr std::string_view kProgress[] = {"WaitingForNode", "Pending",
                                                   "Downloading",    "Installing",
                                                   "Loading",        "PodPending",
                                                   "PodNotReady",    "ServiceNotReady",
                                                   "RollingOut",     "Serving",
                                                   "ScaledToZero",   "LoadBalancerPending",
                                                   "Outdated",       "CloudAddressPending",
                                                   "TierNotReached"};
  return std::find(std::begin(kProgress), std::end(kProgress), reason) != std::end(kProgress);
}

}  // namespace varda::hosting
