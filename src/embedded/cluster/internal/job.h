// Jobs: pods that run until enough of them have succeeded.
//
// Each ended pod is counted exactly once, even if it is deleted at any time. Every pod carries a
// finalizer. The pod's uid is first written to status.uncountedTerminatedPods. Then the finalizer
// is removed, and only then the uid becomes a count. Kubernetes does the same
// (kubernetes.io/docs/concepts/workloads/controllers/job, "Job tracking with finalizers").
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/core/job.h"
#include "cluster/controllers.h"
#include "cluster/internal/workload.h"
#include "runtime/controller.h"

namespace varda::cluster {

inline constexpr std::string_view kJobFinalizer = "batch.kubernetes.io/job-tracking";
inline constexpr std::string_view kJobIndex = "batch.kubernetes.io/job-completion-index";

struct JobPlan {
  Json status;
  PodList count;       // their finalizer is removed after the status is written
  PodList withdraw;    // deleted without counting as failed: the finalizer is removed first
  PodChanges changes;  // `remove`: deleted, counting as failed
  struct PlannedEvent {
    runtime::EventType type;
    std::string reason, message;
  };
  std::vector<PlannedEvent> events;
  bool expired = false;           // the Job itself is due for deletion
  std::optional<Duration> again;  // a deadline, a back-off, or the TTL after the end
};

/// Pure. `pods`: those that the Job controls. `backoff`: delay before the first failed pod is
/// replaced; doubles with each failure.
JobPlan plan_job(const api::Job& job, const PodList& pods, WallTime now,
                 std::chrono::seconds backoff);

/// Converts "0,2-4" to indexes and back. Malformed parts are skipped.
std::set<std::int64_t> parse_indexes(const std::string& text);
std::string write_indexes(const std::set<std::int64_t>& indexes);

class JobReconciler {
 public:
  JobReconciler(const runtime::Caches& caches, const Options& options);
  void watches(runtime::Watches<api::Job>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::Job& job,
                                    runtime::Writer& writer) const;
  /// Releases the pods of a deleted Job: no Job counts them any more.
  Result<runtime::Action> on_deleted(const Context& ctx, const meta::ObjectKey& key,
                                     runtime::Writer& writer) const;

 private:
  Status release_anonymous(const Context& ctx, const meta::ObjectKey& key, const std::string& uid,
                           runtime::Writer& writer) const;

  const runtime::Caches& caches_;
  const Options options_;
  const Clock& clock_;
};

/// Removes the finalizer from pods without a controlling Job, such as orphans of a deleted Job. No
/// Job counts these pods, so a pod with the finalizer would never disappear.
class JobOrphanReconciler {
 public:
  void watches(runtime::Watches<api::Pod>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::Pod& pod,
                                    runtime::Writer& writer) const;
};

}  // namespace varda::cluster
