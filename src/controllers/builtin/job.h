// Jobs: pods that run until enough of them have succeeded.
//
// A pod that has ended is counted exactly once, whoever deletes it when: every pod carries a finalizer, its uid goes into
// status.uncountedTerminatedPods, then the finalizer goes, and only then the uid becomes a number (as Kubernetes does it:
// kubernetes.io/docs/concepts/workloads/controllers/job, "Job tracking with finalizers").
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/core/job.h"
#include "controllers/builtin/builtin.h"
#include "controllers/builtin/workload.h"
#include "runtime/controller.h"

namespace varda::controllers {

inline constexpr std::string_view kJobFinalizer = "batch.kubernetes.io/job-tracking";
inline constexpr std::string_view kJobIndex = "batch.kubernetes.io/job-completion-index";

struct JobPlan {
  Json status;
  PodList count;       // once the status is written, their finalizer goes
  PodList withdraw;    // ended without being a failure: the finalizer goes first
  PodChanges changes;  // `remove`: ended, and a failure
  struct Told {
    runtime::EventType type;
    std::string reason, message;
  };
  std::vector<Told> told;
  bool expired = false;           // the Job itself is to be deleted
  std::optional<Duration> again;  // a deadline, a back-off, the end of its time to live
};

/// Pure. `pods`: those the Job controls. `backoff`: before the first pod that failed is replaced; it doubles with each.
JobPlan plan_job(const api::Job& job, const PodList& pods, WallTime now, std::chrono::seconds backoff);

/// "0,2-4" and back. What cannot be read is left out.
std::set<std::int64_t> parse_indexes(const std::string& text);
std::string write_indexes(const std::set<std::int64_t>& indexes);

class JobReconciler {
 public:
  JobReconciler(const runtime::Caches& caches, const BuiltinOptions& options);
  void watches(runtime::Watches<api::Job>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::Job& job, runtime::Writer& writer) const;
  /// Pods of a Job that is no more are nobody's to count.
  Result<runtime::Action> gone(const Context& ctx, const meta::ObjectKey& key, runtime::Writer& writer) const;

 private:
  Status release_strangers(const Context& ctx, const meta::ObjectKey& key, const std::string& uid, runtime::Writer& writer) const;

  const runtime::Caches& caches_;
  const BuiltinOptions options_;
  const Clock& clock_;
};

/// Takes the finalizer from pods that no Job controls any more, as those of a Job that was deleted without them: nothing counts
/// them, so a pod with the finalizer could never be deleted.
class JobOrphanReconciler {
 public:
  void watches(runtime::Watches<api::Pod>& w) const;
  Result<runtime::Action> reconcile(const Context& ctx, const api::Pod& pod, runtime::Writer& writer) const;
};

}  // namespace varda::controllers
