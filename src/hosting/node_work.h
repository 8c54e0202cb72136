// The work that jobs create for a node: the interface between kinds of jobs and the only writer of
// EdgeNode.spec.
#pragma once

#include <string>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "hosting/port_claims.h"
#include "meta/object.h"
#include "runtime/controller.h"

namespace varda::hosting {

/// Key of an object in work lists: "datasets.edgeai.io/NS/NAME".
inline std::string work_key(const meta::Resource& resource, const meta::ObjectKey& key) {
  return resource.group_resource() + "/" + key.str();
}

/// Work of one job on one node.
struct NodeWork {
  std::string since;  // the job's metadata.creationTimestamp: the oldest work wins
  std::vector<api::EdgeModel> models;
  std::vector<api::EdgeWorker> workers;
  std::vector<api::EdgeSamples> samples;
};

/// One kind of jobs. Outlives the EdgeNode controller; called on its worker thread and on informer
/// threads.
class JobWork {
 public:
  virtual ~JobWork() = default;
  /// "JointInferenceService": prefix of the owner of its workers.
  virtual std::string kind() const = 0;
  /// Adds the watches that requeue EdgeNodes for changes of the kind's objects and their
  /// dependencies. Nodes, EdgeNodes and Pods with kModelLabel are already watched.
  virtual void watches(runtime::Watches<api::EdgeNode>& w) const = 0;
  /// Work of all jobs of the kind on `node`; in any order.
  virtual std::vector<NodeWork> work_for(const api::EdgeNode& node,
                                         const runtime::Caches& caches) const = 0;
  /// Ports of the node that jobs of the kind have or want. Called from several threads.
  virtual std::vector<PortClaim> claims_on(const std::string& node,
                                           const runtime::Caches& caches) const = 0;
};

}  // namespace varda::hosting
