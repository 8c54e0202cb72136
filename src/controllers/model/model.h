// Model for other folders: the controllers of both groups, and the copies that a Model asks for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "api/edgeai/model.h"
#include "controllers/replication/replication.h"
#include "hosting/kind_controllers.h"
#include "hosting/model_archive.h"
#include "hosting/servers.h"
#include "runtime/controller.h"
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

// ---- files of nodes, with an unknown digest
//
// A Model with a path and no sha256 is pinned to the bytes that its node reads first. The operator
// asks with an item of EdgeNode.spec.files, and accepts the report that answers this item.

void add_file_indexes(runtime::Watches<api::EdgeNode>& w);
/// The nodes that may have the Model's path: spec.nodeName, else the nodes of InferenceModels that
/// may choose the Model. Empty: the file needs no read.
std::vector<std::string> reading_nodes(const hosting::AnyModel& model,
                                       const runtime::Caches& caches);
/// The files that `node` shall read: those of Models that an object serves. Needs the indexes.
std::vector<api::EdgeFile> files_to_read(const std::string& node, const runtime::Caches& caches);

template <api::Group G>
std::vector<replication::ReplicationClaim> claims_in(const api::ModelOf<G>& model) {
  std::vector<replication::ReplicationClaim> claims;
  if (auto claim = claim_of({api::ModelOf<G>::resource(), model.metadata}, model.spec))
    claims.push_back(std::move(*claim));
  return claims;
}

}  // namespace varda::controllers::model
