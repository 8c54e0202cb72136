// Status of a Deployment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/core/deployment.h"
#include "cluster/internal/rollout.h"
#include "cluster/internal/workload.h"

namespace varda::cluster {

/// Sums over a Deployment's ReplicaSets.
struct DeploymentCounts {
  std::int64_t wanted = 0;  // sum of the desired replicas
  std::int64_t replicas = 0, updated = 0, ready = 0, available = 0;
};

struct DeploymentStory {
  enum class Set { kAbsent, kCreated, kPresent } set = Set::kAbsent;  // of the current template
  enum class Mode {
    kScaling,
    kRolling
  } mode = Mode::kRolling;  // kScaling, also if paused: no deadline
  std::string set_name;
  std::optional<Phrasing> replica_failure;
};

/// Pure. Sets `alarm` to the progress deadline.
Json deployment_status(const api::Deployment& deployment, const Bounds& bounds,
                       const DeploymentCounts& counts, const DeploymentStory& story, WallTime now,
                       Timer& timer);

/// True if all replicas run the current template and are available.
bool deployment_complete(const Bounds& bounds, const DeploymentCounts& counts);

}  // namespace varda::cluster
