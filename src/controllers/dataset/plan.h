// What a Dataset asks of its node (work_for) and what its status says (observe). Pure, and the same for both groups.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "api/core/node.h"
#include "api/edgeai/dataset.h"
#include "api/edgeai/edge_node.h"
#include "controllers/inferencemodel/placement.h"
#include "controllers/replication/plan.h"

namespace varda::controllers {

inline constexpr std::size_t kDatasetsPerNode = 128;  // maxItems of EdgeNode.spec.datasets; the oldest ones are kept

/// A Dataset of either group. Borrows all of it.
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

/// How work lists call an object: "datasets.edgeai.io/NS/NAME".
std::string work_key(const meta::Resource& resource, const meta::ObjectKey& key);

/// Why no node can count it, whatever the nodes are: InvalidSpec, Unsupported, FormatUnknown, NodeMissing.
std::optional<Problem> spec_problem(const DatasetView& dataset);

/// What the agent of spec.nodeName has to watch; nothing: there is a problem, or the dataset is being deleted.
std::optional<api::EdgeDataset> work_for(const DatasetView& dataset);

/// What other nodes shall have of it; nothing: no node shall, or there is a problem.
std::optional<ReplicationClaim> claim_of(const DatasetView& dataset);

/// What is around one Dataset: both of spec.nodeName, and null where there is none.
struct DatasetWorld {
  std::shared_ptr<const api::Node> node;
  std::shared_ptr<const api::EdgeNode> edge_node;
};

/// What to report. `now` is for transition times (RFC 3339).
///
/// The figures are those of the node's last report that answers to this very object and spec. While there is none they stay, unless
/// the spec has changed: then they would speak of other data. What a report cannot mean (negative numbers, more than a status
/// holds) is left out, and the condition ReportAccepted says so.
api::DatasetStatus observe(const DatasetView& dataset, const DatasetWorld& world, std::string_view now);

/// Reasons of a wait that ends by itself: no Event is made of them.
bool is_dataset_progress(std::string_view reason);

}  // namespace varda::controllers
