// Node ports of services: claims computed from the caches, and the services that a change of a
// claim affects. Pure.
//
// The Writer passes each write's answer to the caches, so the next plan already sees new pods.
#pragma once

#include <string>
#include <vector>

#include "api/core/pod.h"
#include "api/sedna/joint_inference_service.h"
#include "controllers/joint/indexes.h"
#include "controllers/workers/workers.h"
#include "hosting/placement.h"
#include "hosting/port_claims.h"
#include "runtime/informer.h"

namespace varda::controllers::joint {

/// Ports that pods of the service have on `nodes`, and those that its first tier wants there.
/// `pods`: those of the service on `nodes`. `port` is the port of our server; 0: not chosen yet.
std::vector<hosting::PortClaim> claims_of(const api::JointInferenceService& service,
                                          const hosting::NodeList& nodes,
                                          const std::vector<workers::PodPtr>& pods,
                                          std::int64_t port);

/// Claims of all services on these nodes. A service that selects nodes claims ports only where it
/// has pods if there are more nodes than its first tier may have: it does not run on all of them.
std::vector<hosting::PortClaim> claims_on(const std::vector<std::string>& nodes,
                                          const runtime::Caches& caches);
/// Claims of all owners on these nodes, but of none with this uid.
std::vector<hosting::PortClaim> claims_of_others(const std::vector<std::string>& nodes,
                                                 const std::string& uid,
                                                 const runtime::Caches& caches);

/// Services that may get or lose a port by the change: they want a port of a claim that began, or
/// wait for a port on the node of a claim that ended. Null: no such version.
Keys port_changed_by(const api::InferenceModel* before, const api::InferenceModel* now,
                     const runtime::Caches& caches);
Keys port_changed_by(const api::Pod* before, const api::Pod* now, const runtime::Caches& caches);
Keys port_changed_by(const api::JointInferenceService* before,
                     const api::JointInferenceService* now, const runtime::Caches& caches);

}  // namespace varda::controllers::joint
