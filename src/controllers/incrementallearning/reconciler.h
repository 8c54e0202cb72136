// Controller of IncrementalLearningJobs: caches in, plan() and observe(), writes out. Also the work
// that jobs give to nodes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "controllers/incrementallearning/plan.h"
#include "controllers/runs/runs.h"
#include "hosting/node_work.h"
#include "hosting/passing_problems.h"
#include "hosting/servers.h"
#include "runtime/controller.h"

namespace varda::controllers::incrementallearning {

/// Keeps every job's service, and brings each of its rounds to an end, once. Several jobs at once.
class IncrementalReconciler {
 public:
  /// `caches` outlive it.
  IncrementalReconciler(const runtime::Caches& caches, hosting::Options options)
      : caches_(caches), options_(std::move(options)), clock_(hosting::clock_of(options_)) {}

  void watches(runtime::Watches<api::IncrementalLearningJob>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::IncrementalLearningJob& job,
                                    runtime::Writer& writer);
  Result<runtime::Action> on_deleted(const Context& ctx, const meta::ObjectKey& key,
                                     runtime::Writer& writer);

 private:
  IncrementalWorld look(const api::IncrementalLearningJob& job) const;

  const runtime::Caches& caches_;
  const hosting::Options options_;
  const Clock& clock_;
  runs::FailedPods failed_pods_;
  Mutex mutex_;
  hosting::PassingProblems passing_ GUARDED_BY(mutex_);
};

/// The work that jobs give to nodes: models and workers.
class IncrementalWork final : public hosting::JobWork {
 public:
  std::string kind() const override { return api::IncrementalLearningJob::resource().kind; }
  void watches(runtime::Watches<api::EdgeNode>& w) const override;
  std::vector<hosting::NodeWork> work_for(const api::EdgeNode& node,
                                          const runtime::Caches& caches) const override;
  std::vector<hosting::PortClaim> claims_on(const std::string& node,
                                            const runtime::Caches& caches) const override;
};

}  // namespace varda::controllers::incrementallearning
