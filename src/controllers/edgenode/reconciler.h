// The controller of EdgeNodes: the only writer of their spec.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "api/edgeai/edge_node.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "controllers/edgenode/archive_sharing.h"
#include "controllers/edgenode/job_work.h"
#include "controllers/inferencemodel/options.h"
#include "runtime/controller.h"

namespace varda::controllers {

/// Keeps the lists of every EdgeNode's spec what plan_edge_node() says; the rest of spec, and workers of nobody's kind, are left
/// alone.
///
/// The lists are one value, written whole for each change of it. A change is written at once, and what comes soon after waits to be
/// written with what comes until then. The longer the lists, the more of them a write changed and the longer it took, the longer
/// the pause, so that a thousand models that arrive together do not write them a thousand times. A few milliseconds where a node
/// has a few models, a second where it has a hundred and all of them come at once.
class EdgeNodeReconciler {
 public:
  /// `caches`, `clock` and `jobs` outlive it. `servers` says how nodes show versions to servers, and ask them; `jobs` are the kinds
  /// whose workers run on nodes.
  explicit EdgeNodeReconciler(const runtime::Caches& caches, const Clock& clock = system_clock(),
                              ServerTable servers = builtin_servers(), std::vector<const JobWork*> jobs = {})
      : caches_(caches), clock_(clock), servers_(std::move(servers)), jobs_(std::move(jobs)) {}

  void watches(runtime::Watches<api::EdgeNode>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::EdgeNode& node, runtime::Writer& writer);
  Result<runtime::Action> gone(const Context& ctx, const meta::ObjectKey& key, runtime::Writer& writer);

 private:
  using Digests = std::set<std::string, std::less<>>;
  /// The nodes whose lists may say otherwise of these archives and of those named with an earlier word, if `facts` is another word
  /// than the last one under that name.
  std::vector<meta::ObjectKey> nodes_that_share(const std::string& name, std::string facts, Digests digests) const;
  std::vector<meta::ObjectKey> nodes_that_share_with(const api::EdgeNode& node) const;
  std::vector<meta::ObjectKey> nodes_that_share_with(const api::Node& node) const;
  std::vector<meta::ObjectKey> nodes_that_share(const api::InferenceModel& model) const;
  void tell_left_out(const api::EdgeNode& node, std::vector<std::string> now, runtime::Writer& writer);

  const runtime::Caches& caches_;
  const Clock& clock_;
  const ServerTable servers_;
  const std::vector<const JobWork*> jobs_;
  ArchiveGivers givers_;  // of the one worker
  struct Word {
    std::string facts;
    Digests digests;
  };
  mutable Mutex mutex_;
  mutable std::map<std::string, Word> words_ GUARDED_BY(mutex_);  // of what watches brought, by kind and name
  std::map<std::string, SteadyTime> next_write_;                  // by node, not before; of the one worker
  std::map<std::string, std::vector<std::string>> left_out_;      // by node, as last told; of the one worker
};

}  // namespace varda::controllers
