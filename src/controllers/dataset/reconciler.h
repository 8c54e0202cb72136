// The controller of Datasets, of either group: caches in, observe(), status out. plan_edge_node()
// creates the work for nodes.
#pragma once

#include "controllers/dataset/plan.h"
#include "runtime/controller.h"

namespace varda::controllers::dataset {

/// Keeps the status of every Dataset of group G equal to its node's report. Uses no finalizer:
/// deletion is immediate, and the node sees the item disappear from its list.
template <api::Group G>
class DatasetReconciler {
 public:
  using Dataset = api::DatasetOf<G>;
  /// `caches` and `clock` outlive the reconciler.
  DatasetReconciler(const runtime::Caches& caches, const Clock& clock)
      : caches_(caches), clock_(clock) {}

  void watches(runtime::Watches<Dataset>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const Dataset& dataset,
                                    runtime::Writer& writer) const;

 private:
  const runtime::Caches& caches_;
  const Clock& clock_;
};

extern template class DatasetReconciler<api::Group::kEdgeai>;
extern template class DatasetReconciler<api::Group::kSedna>;

}  // namespace varda::controllers::dataset
