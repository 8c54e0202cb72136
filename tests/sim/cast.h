// Cast: the kinds that a world plays.
#pragma once

namespace varda::sim {

/// Every kind has its own user. A world plays few kinds, so that a schedule stays short and its kinds meet each other.
struct Cast {
  int edge_models = 0;
  bool deployment = false, cloud_model = false, joint = false, worker = false, dataset = false;
  /// Whether there must be a node of the cloud layer.
  bool needs_cloud() const { return cloud_model || joint || worker; }
};

}  // namespace varda::sim
