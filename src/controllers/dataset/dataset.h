// Dataset for other folders: the controllers of both groups, and a dataset's work for nodes.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "api/edgeai/dataset.h"
#include "api/edgeai/edge_node.h"
#include "controllers/replication/replication.h"
#include "hosting/kind_controllers.h"
#include "hosting/servers.h"
#include "runtime/manager.h"

namespace varda::controllers::dataset {

/// Adds the controllers of both groups. `manager` outlives the result.
std::unique_ptr<hosting::KindControllers> add(runtime::Manager& manager,
                                              const hosting::Options& options);

inline constexpr std::size_t kDatasetsPerNode =
    128;  // maxItems of EdgeNode.spec.datasets; oldest stay

/// A Dataset of either group. Borrows all members.
struct DatasetView {
  const meta::Resource& resource;
  const meta::ObjectMeta& metadata;
  const api::DatasetSpec& spec;
  const api::DatasetStatus& status;
};

template <api::Group G>
DatasetView view(const api::DatasetOf<G>& dataset) {
  return {api::DatasetOf<G>::resource(), dataset.metadata, dataset.spec, dataset.status};
}

/// Work for the agent of spec.nodeName; empty: there is a problem, or the dataset is being deleted.
std::optional<api::EdgeDataset> work_for(const DatasetView& dataset);

/// The copies for other nodes; empty: none are requested, or there is a problem.
std::optional<replication::ReplicationClaim> claim_of(const DatasetView& dataset);

template <api::Group G>
std::vector<replication::ReplicationClaim> claims_in(const api::DatasetOf<G>& dataset) {
  std::vector<replication::ReplicationClaim> claims;
  if (auto claim = claim_of(view(dataset))) claims.push_back(std::move(*claim));
  return claims;
}

}  // namespace varda::controllers::dataset
