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
#include "controllers/dataset/dataset.h"
#include "hosting/placement.h"

namespace varda::controllers::dataset {

/// Why no node could count the dataset: InvalidSpec, Unsupported, FormatUnknown, NodeMissing.
std::optional<hosting::Problem> spec_problem(const DatasetView& dataset);

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

/// Progress of the copies; empty: no node needs a copy. `world` is that of the claim, if any.
std::optional<api::ReplicationStatus> observe_copies(const DatasetView& dataset,
                                                     const replication::ReplicationWorld& world,
                                                     std::string_view now);

/// True for reasons of a wait that ends by itself; these cause no Event.
bool is_dataset_progress(std::string_view reason);

}  // namespace varda::controllers::dataset
