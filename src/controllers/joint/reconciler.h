// Controller of JointInferenceServices: caches in, plan() and observe(), writes out. Also the work
// that services give to nodes.
#pragma once

#include "base/mutex.h"
#include "controllers/joint/plan.h"
#include "hosting/node_work.h"
#include "hosting/passing_problems.h"
#include "hosting/replacement_pauses.h"
#include "hosting/servers.h"
#include "runtime/controller.h"

namespace varda::controllers::joint {

/// Keeps the pods, models and status of every service, several services at once: most of the time a
/// worker waits for answers to its writes. Plans are made one at a time. A plan sees the ports of
/// plans whose pods are still being written, so two services never choose one port.
class JointInferenceReconciler {
 public:
  /// `caches` outlive it.
  JointInferenceReconciler(const runtime::Caches& caches, hosting::Options options);

  void watches(runtime::Watches<api::JointInferenceService>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::JointInferenceService& service,
                                    runtime::Writer& writer);
  Result<runtime::Action> on_deleted(const Context& ctx, const meta::ObjectKey& key,
                                     runtime::Writer& writer);

 private:
  JointWorld look(const api::JointInferenceService& service, const std::vector<Tier>& tiers) const;
  /// The plan, and the world that it saw. Its ports are taken until release().
  std::pair<JointWorld, JointPlan> plan_alone(const api::JointInferenceService& service);
  void release(const meta::ObjectKey& service);
  /// Removes ended pods after their pause. Returns the time until the next pause ends.
  Result<std::optional<Duration>> replace_ended(const Context& ctx, const meta::ObjectKey& service,
                                                const JointPlan& plan, runtime::Writer& writer);

  const runtime::Caches& caches_;
  const hosting::Options options_;
  const Clock& clock_;
  Mutex planning_;  // held over a plan; before mutex_
  Mutex mutex_;
  std::map<meta::ObjectKey, std::vector<hosting::PortClaim>> taken_
      GUARDED_BY(mutex_);  // by service: ports of plans being written
  std::map<meta::ObjectKey, hosting::ReplacementPauses> pauses_
      GUARDED_BY(mutex_);  // by service; keys within: its pods
  hosting::PassingProblems passing_ GUARDED_BY(mutex_);
};

/// The work that services give to nodes: models with their tiers, and workers.
class JointWork final : public hosting::JobWork {
 public:
  explicit JointWork(hosting::Options options) : options_(std::move(options)) {}

  std::string kind() const override { return api::JointInferenceService::resource().kind; }
  void watches(runtime::Watches<api::EdgeNode>& w) const override;
  std::vector<hosting::NodeWork> work_for(const api::EdgeNode& node,
                                          const runtime::Caches& caches) const override;
  std::vector<hosting::PortClaim> claims_on(const std::string& node,
                                            const runtime::Caches& caches) const override;

 private:
  const hosting::Options options_;
};

}  // namespace varda::controllers::joint
