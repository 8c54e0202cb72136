// The controller of EdgeNodes: the only writer of EdgeNode.spec.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "base/clock.h"
#include "controllers/edgenode/archive_sharing.h"
#include "hosting/model_keys.h"
#include "hosting/node_work.h"
#include "hosting/servers.h"
#include "runtime/controller.h"

namespace varda::controllers::edgenode {

/// Keeps the lists in every EdgeNode's spec equal to plan_edge_node(). The rest of spec, and
/// workers of unknown kinds, stay unchanged.
///
/// The lists are one value and every change writes them as a whole. The first change is written at
/// once. Further changes wait and are written together, so that a thousand new models do not cause
/// a thousand writes. The pause grows with the length of the lists, and with the changes and the
/// duration of the last write. It is a few milliseconds for a few models, and a second for a
/// hundred models that arrive together. A plan without a write causes a shorter pause, by its
/// duration.
class EdgeNodeReconciler {
 public:
  /// `caches`, `clock` and `jobs` outlive the reconciler. `servers` describes how nodes expose
  /// versions to servers and query them; `jobs` are the kinds with workers on nodes. `model_keys`
  /// null: signatures are not checked.
  explicit EdgeNodeReconciler(
      const runtime::Caches& caches, const Clock& clock = system_clock(),
      hosting::ServerTable servers = hosting::builtin_servers(),
      std::vector<const hosting::JobWork*> jobs = {},
      std::shared_ptr<hosting::ModelKeySource> model_keys = nullptr,
      hosting::ReadableFiles readable_files = hosting::ReadableFiles::kDownloads)
      : caches_(caches),
        clock_(clock),
        servers_(std::move(servers)),
        jobs_(std::move(jobs)),
        model_keys_(std::move(model_keys)),
        readable_files_(readable_files) {}

  void watches(runtime::Watches<api::EdgeNode>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::EdgeNode& node,
                                    runtime::Writer& writer);
  Result<runtime::Action> on_deleted(const Context& ctx, const meta::ObjectKey& key,
                                     runtime::Writer& writer);

 private:
  void report_left_out(const api::EdgeNode& node, std::vector<std::string> now,
                       runtime::Writer& writer);

  const runtime::Caches& caches_;
  const Clock& clock_;
  const hosting::ServerTable servers_;
  const std::vector<const hosting::JobWork*> jobs_;
  const std::shared_ptr<hosting::ModelKeySource> model_keys_;
  const hosting::ReadableFiles readable_files_;
  ArchivePeers peers_;                                        // worker thread only
  std::map<std::string, SteadyTime> next_plan_;               // by node; worker thread only
  std::map<std::string, std::vector<std::string>> left_out_;  // by node; worker thread only
};

}  // namespace varda::controllers::edgenode
