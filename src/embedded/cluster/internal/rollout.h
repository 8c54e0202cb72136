// The arithmetic of a roll-out: the next size of each ReplicaSet of a Deployment.
#pragma once

#include <cstdint>
#include <vector>

#include "api/core/deployment.h"

namespace varda::cluster {

/// Limits of a roll-out.
struct Bounds {
  bool recreate = false;
  std::int64_t desired = 0;
  std::int64_t surge = 0;
  std::int64_t unavailable = 0;

  static Bounds of(const api::Deployment& deployment);
  std::int64_t total_max() const { return desired > 0 ? desired + surge : 0; }
  std::int64_t available_min() const { return desired - unavailable; }
};

/// One ReplicaSet, as input of the arithmetic.
struct Share {
  std::int64_t replicas = 0;     // spec
  std::int64_t actual = 0;       // status.replicas
  std::int64_t available = 0;    // status.availableReplicas
  std::int64_t scaled_for = -1;  // the Deployment's spec.replicas at the last scaling; -1: unknown
  std::int64_t total_max_then = -1;  // desired plus surge at that time; -1: unknown
};

/// The next size of each set. `shares` are oldest first; `fresh` is the index of the current
/// template's set, or -1. Computes one step; the caller repeats the call after each step until
/// nothing changes.
std::vector<std::int64_t> roll_out(const Bounds& bounds, const std::vector<Share>& shares,
                                   int fresh, bool old_pods_run);

/// For a Deployment that was scaled or is paused: its ReplicaSets grow and shrink in proportion,
/// without a roll-out. `status_replicas` replaces an unknown total_max_then.
std::vector<std::int64_t> scale_all(const Bounds& bounds, const std::vector<Share>& shares,
                                    int fresh, std::int64_t status_replicas);

}  // namespace varda::cluster
