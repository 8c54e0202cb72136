// The controller of Models, of either group.
#pragma once

#include "controllers/model/plan.h"
#include "runtime/controller.h"

namespace varda::controllers::model {

/// Merges workers' reports into the status of every Model of group G. Jobs write there too, so each
/// write is based on a fresh read. Uses no finalizer: deletion is immediate. Pins the digest of a
/// file that an object serves.
template <api::Group G>
class ModelReconciler {
 public:
  using Model = api::ModelOf<G>;
  /// `caches` and the clock outlive the reconciler.
  ModelReconciler(const runtime::Caches& caches, const hosting::Options& options)
      : caches_(caches),
        clock_(hosting::clock_of(options)),
        file_digests_(options.file_digests),
        readable_files_(options.readable_files) {}

  void watches(runtime::Watches<Model>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const Model& model,
                                    runtime::Writer& writer) const;

 private:
  const runtime::Caches& caches_;
  const Clock& clock_;
  const hosting::FileDigestReader file_digests_;
  const hosting::ReadableFiles readable_files_;
};

extern template class ModelReconciler<api::Group::kEdgeai>;
extern template class ModelReconciler<api::Group::kSedna>;

}  // namespace varda::controllers::model
