// What jobs give a node to do: the seam between their kinds and the one writer of EdgeNode.spec.
#pragma once

#include <string>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "runtime/controller.h"

namespace varda::controllers {

/// Of one job on one node.
struct NodeWork {
  std::string since;  // the job's metadata.creationTimestamp: of too much the oldest is kept
  std::vector<api::EdgeModel> models;
  std::vector<api::EdgeWorker> workers;
};

/// One kind of jobs. Outlives the EdgeNode controller; called from its worker, and from threads of informers.
class JobWork {
 public:
  virtual ~JobWork() = default;
  /// "JointInferenceService": what begins the owner of its workers.
  virtual std::string kind() const = 0;
  /// Adds what of its objects, and of whatever they depend on, makes EdgeNodes be looked at again. Nodes, EdgeNodes' own changes
  /// and Pods with kModelLabel are watched already.
  virtual void watches(runtime::Watches<api::EdgeNode>& w) const = 0;
  /// Of all jobs of the kind that have something to do on `node`; in any order.
  virtual std::vector<NodeWork> work_for(const api::EdgeNode& node, const runtime::Caches& caches) const = 0;
};

}  // namespace varda::controllers
