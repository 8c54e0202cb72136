// Model for other folders: the controllers of both groups, and the copies that a Model asks for.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "api/edgeai/model.h"
#include "controllers/replication/replication.h"
#include "hosting/kind_controllers.h"
#include "hosting/servers.h"
#include "runtime/manager.h"

namespace varda::controllers::model {

/// Adds the controllers of both groups. `manager` outlives the result.
std::unique_ptr<hosting::KindControllers> add(runtime::Manager& manager,
                                              const hosting::Options& options);

/// Identifies a Model of either group. Borrows all members.
struct ModelView {
  const meta::Resource& resource;
  const meta::ObjectMeta& metadata;
};

/// The copies for other nodes; empty: none are requested, or the Model has no path on a node.
std::optional<replication::ReplicationClaim> claim_of(const ModelView& model,
                                                      const api::ModelSpec& spec);

template <api::Group G>
std::vector<replication::ReplicationClaim> claims_in(const api::ModelOf<G>& model) {
  std::vector<replication::ReplicationClaim> claims;
  if (auto claim = claim_of({api::ModelOf<G>::resource(), model.metadata}, model.spec))
    claims.push_back(std::move(*claim));
  return claims;
}

}  // namespace varda::controllers::model
