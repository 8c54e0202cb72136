#include "api/core/job.h"

#include "api/describe.h"

namespace varda::api {

void JobSpec::describe(Type<JobSpec>& t) {
  t.field("parallelism", &JobSpec::parallelism, "Pods at a time.");
  t.field("completions", &JobSpec::completions, "Pods that must succeed.");
  t.field("backoffLimit", &JobSpec::backoff_limit, "Failures that are borne.");
  t.field("activeDeadlineSeconds", &JobSpec::active_deadline_seconds, "How long it may take.");
  t.field("ttlSecondsAfterFinished", &JobSpec::ttl_seconds_after_finished,
          "How long it is kept when it has ended.");
  t.field("completionMode", &JobSpec::completion_mode, "Whether pods have an index.");
  t.field("podReplacementPolicy", &JobSpec::pod_replacement_policy,
          "When a pod on its way out is replaced.");
  t.field("managedBy", &JobSpec::managed_by, "Who runs it.");
  t.field("suspend", &JobSpec::suspend, "Has no pods.");
  t.field("template", &JobSpec::pod_template, "The pods.").always();
  t.field("selector", &JobSpec::selector, "Labels of the pods.");
  t.field("podFailurePolicy", &JobSpec::pod_failure_policy, "What a failure means.");
  t.field("successPolicy", &JobSpec::success_policy, "When enough has succeeded.");
  t.field("backoffLimitPerIndex", &JobSpec::backoff_limit_per_index,
          "Failures of one index that are borne.");
  t.keep_unknown(&JobSpec::unknown);
}

void JobStatus::describe(Type<JobStatus>& t) {
  t.field("conditions", &JobStatus::conditions, "Conditions.");
  t.field("startTime", &JobStatus::start_time, "When it began.");
  t.field("completionTime", &JobStatus::completion_time, "When it had succeeded.");
  t.field("active", &JobStatus::active, "Pods that have not ended.");
  t.field("succeeded", &JobStatus::succeeded, "Pods that succeeded.");
  t.field("failed", &JobStatus::failed, "Pods that failed.");
  t.field("terminating", &JobStatus::terminating, "Pods on their way out.");
  t.field("ready", &JobStatus::ready, "Active pods that are ready.");
  t.field("completedIndexes", &JobStatus::completed_indexes, "Indexes that succeeded.");
  t.field("uncountedTerminatedPods", &JobStatus::uncounted_terminated_pods,
          "Pods about to be counted.");
  t.keep_unknown(&JobStatus::unknown);
}

void Job::describe(Type<Job>& t) {
  t.field("metadata", &Job::metadata, "Metadata.");
  t.field("spec", &Job::spec, "Spec.");
  t.field("status", &Job::status, "Status.");
  t.keep_unknown(&Job::unknown);
}

const meta::Resource& Job::resource() {
  static const meta::Resource resource{"batch", "v1", "Job", "jobs", true};
  return resource;
}

Result<Job> Job::from_json(const Json& object) { return read_object<Job>(object); }
Json Job::to_json() const { return write_object(*this); }

}  // namespace varda::api
