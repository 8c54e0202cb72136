// Controller of TrainingModels: caches in, plan() and observe(), writes out. Also the work that
// runs give to nodes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "controllers/runs/runs.h"
#include "controllers/trainingmodel/plan.h"
#include "hosting/node_work.h"
#include "hosting/passing_problems.h"
#include "hosting/servers.h"
#include "runtime/controller.h"

namespace varda::controllers::trainingmodel {

/// Brings every run to its end, once. Several runs at once.
class TrainingReconciler {
 public:
  /// `caches` outlive it.
  TrainingReconciler(const runtime::Caches& caches, hosting::Options options)
      : caches_(caches), options_(std::move(options)), clock_(hosting::clock_of(options_)) {}

  void watches(runtime::Watches<api::TrainingModel>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::TrainingModel& training,
                                    runtime::Writer& writer);
  Result<runtime::Action> on_deleted(const Context& ctx, const meta::ObjectKey& key,
                                     runtime::Writer& writer);

 private:
  TrainingWorld look(const api::TrainingModel& training) const;
  struct NodeMade {
    Status status;
    /// The reason for the user. With an ok status: no gateway is known yet.
    std::optional<hosting::Problem> problem;
  };
  /// Makes the EdgeNode of a Job and the Secret with its token.
  NodeMade make_node(const Context& ctx, const api::TrainingModel& training,
                     runtime::Writer& writer);
  std::optional<hosting::AgentToken> pending_token(const meta::ObjectKey& key,
                                                   const std::string& uid);
  void forget_token(const meta::ObjectKey& key);
  /// Removes EdgeNodes of Jobs under this key, except for that of `kept`; null: all.
  Status remove_nodes(const Context& ctx, const meta::ObjectKey& key,
                      const api::TrainingModel* kept, runtime::Writer& writer) const;

  const runtime::Caches& caches_;
  const hosting::Options options_;
  const Clock& clock_;
  runs::FailedPods failed_pods_;
  Mutex mutex_;
  hosting::PassingProblems passing_ GUARDED_BY(mutex_);
  /// The token of a Secret, until the cache has the EdgeNode. A retry makes no second Secret.
  struct PendingToken {
    std::string uid;  // of the run
    hosting::AgentToken token;
  };
  std::map<meta::ObjectKey, PendingToken> pending_ GUARDED_BY(mutex_);
};

/// The work that runs give to nodes: initial models and workers.
class TrainingWork final : public hosting::JobWork {
 public:
  std::string kind() const override { return api::TrainingModel::resource().kind; }
  void watches(runtime::Watches<api::EdgeNode>& w) const override;
  std::vector<hosting::NodeWork> work_for(const api::EdgeNode& node,
                                          const runtime::Caches& caches) const override;
  /// Pods of runs have no ports of the node.
  std::vector<hosting::PortClaim> claims_on(const std::string&,
                                            const runtime::Caches&) const override {
    return {};
  }
};

}  // namespace varda::controllers::trainingmodel
