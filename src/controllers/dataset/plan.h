// Dataset: the work for its node (work_for) and the object's status (observe). Pure, and the same
// for both groups.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "api/core/node.h"
#include "api/edgeai/dataset.h"
#include "api/edgeai/edge_node.h"
#include "controllers/replication/plan.h"
#include "hosting/placement.h"

namespace varda::controllers {

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

/// Why no node could count the dataset: InvalidSpec, Unsupported, FormatUnknown, NodeMissing.
std::optional<hosting::Problem> spec_problem(const DatasetView& dataset);

/// Work for the agent of spec.nodeName; empty: there is a problem, or the dataset is being deleted.
std::optional<api::EdgeDataset> work_for(const DatasetView& dataset);

/// The copies for other nodes; empty: none are requested, or there is a problem.
std::optional<ReplicationClaim> claim_of(const DatasetView& dataset);

/// The objects named spec.nodeName; null if missing.
struct DatasetWorld {
  std::shared_ptr<const api::Node> node;
  std::shared_ptr<const api::EdgeNode> edge_node;
};

/// The new status. `now` is for transition times (RFC 3339).
///
/// Figures come from the node's last report for this uid and spec. Without one, the previous
/// figures stay, unless the spec changed: they would describe other data. Impossible values
/// (negative numbers, or more than a status holds) are dropped, and the condition ReportAccepted
/// explains that.
api::DatasetStatus observe(const DatasetView& dataset, const DatasetWorld& world,
                           std::string_view now);

/// True for reasons of a wait that ends by itself; these cause no Event.
bool is_dataset_progress(std::string_view reason);

}  // namespace varda::controllers
