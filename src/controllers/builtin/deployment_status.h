// What a Deployment says of itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/core/deployment.h"
#include "controllers/builtin/rollout.h"
#include "controllers/builtin/workload.h"

namespace varda::controllers {

/// Sums over a Deployment's ReplicaSets.
struct DeploymentCounts {
  std::int64_t wanted = 0;  // the sum of what they shall have
  std::int64_t replicas = 0, updated = 0, ready = 0, available = 0;
};

struct DeploymentStory {
  enum class Set { kAbsent, kCreated, kPresent } set = Set::kAbsent;  // of the present template
  enum class Mode { kScaling, kRolling } mode = Mode::kRolling;       // scaling and pausing are no roll-out and have no deadline
  std::string set_name;
  std::optional<Wording> replica_failure;
};

/// Pure. `alarm` rings when the progress deadline is over.
Json deployment_status(const api::Deployment& deployment, const Bounds& bounds, const DeploymentCounts& counts,
                       const DeploymentStory& story, WallTime now, Alarm& alarm);

/// Everything is of the present template and available.
bool deployment_complete(const Bounds& bounds, const DeploymentCounts& counts);

}  // namespace varda::controllers
