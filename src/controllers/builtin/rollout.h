// The arithmetic of a roll-out: how many replicas each ReplicaSet of a Deployment shall have next.
#pragma once

#include <cstdint>
#include <vector>

#include "api/core/deployment.h"

namespace varda::controllers {

/// How far a roll-out may go.
struct Bounds {
  bool recreate = false;
  std::int64_t desired = 0;
  std::int64_t surge = 0;
  std::int64_t unavailable = 0;

  static Bounds of(const api::Deployment& deployment);
  std::int64_t total_max() const { return desired > 0 ? desired + surge : 0; }
  std::int64_t available_min() const { return desired - unavailable; }
};

/// One ReplicaSet as the arithmetic sees it.
struct Share {
  std::int64_t replicas = 0;         // spec
  std::int64_t actual = 0;           // status.replicas
  std::int64_t available = 0;        // status.availableReplicas
  std::int64_t scaled_for = -1;      // spec.replicas of the Deployment when it was last scaled; -1: unknown
  std::int64_t total_max_then = -1;  // desired and surge then; -1: unknown
};

/// What each shall have: `shares` oldest first; `fresh` is the index of the present template's, or -1 if there is none. One step:
/// called again when it has come about, until nothing changes.
std::vector<std::int64_t> roll_out(const Bounds& bounds, const std::vector<Share>& shares, int fresh, bool old_pods_run);

/// The Deployment itself was scaled, or is paused: its ReplicaSets grow and shrink in proportion, and nothing rolls.
/// `status_replicas` stands for a total_max_then that is unknown.
std::vector<std::int64_t> scale_all(const Bounds& bounds, const std::vector<Share>& shares, int fresh,
                                    std::int64_t status_replicas);

}  // namespace varda::controllers
