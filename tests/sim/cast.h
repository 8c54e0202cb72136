// Cast: the kinds that are active in a world.
#pragma once

namespace varda::sim {

/// Every kind has a separate user. A world has few kinds, so that a schedule stays short and its
/// kinds interact.
struct Cast {
  int edge_models = 0;
  bool deployment = false, cloud_model = false, joint = false, worker = false, dataset = false;
  /// Whether the world needs a node of the cloud layer.
  bool needs_cloud() const { return cloud_model || joint || worker; }
};

}  // namespace varda::sim
