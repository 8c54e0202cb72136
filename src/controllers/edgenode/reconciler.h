// The controller of EdgeNodes: the only writer of their spec.
#pragma once

#include "api/edgeai/edge_node.h"
#include "runtime/controller.h"

namespace varda::controllers {

/// Keeps spec.models of every EdgeNode what plan_edge_node() says.
class EdgeNodeReconciler {
 public:
  /// `caches` outlive it.
  explicit EdgeNodeReconciler(const runtime::Caches& caches) : caches_(caches) {}

  void watches(runtime::Watches<api::EdgeNode>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::EdgeNode& node, runtime::Writer& writer) const;

 private:
  const runtime::Caches& caches_;
};

}  // namespace varda::controllers
