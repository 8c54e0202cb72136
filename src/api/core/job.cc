#include "api/core/job.h"

#include "api/describe.h"
#include "meta/resources.h"

namespace varda::api {

void JobSpec::describe(Type<JobSpec>& t) {
  t.field("parallelism", &JobSpec::parallelism, "Pods at a time.");
  t.field("completions", &JobSpec::completions, "Pods that must succeed.");
  t.field("backoffLimit", &JobSpec::backoff_limit, "Failures before the job counts as failed.");
  t.field("activeDeadlineSeconds", &JobSpec::active_deadline_seconds, "Time limit of the job.");
  t.field("ttlSecondsAfterFinished", &JobSpec::ttl_seconds_after_finished,
          "Time after the end until the job is deleted.");
  t.field("completionMode", &JobSpec::completion_mode, "NonIndexed or Indexed.");
  t.field("podReplacementPolicy", &JobSpec::pod_replacement_policy,
          "TerminatingOrFailed or Failed: when a pod is replaced.");
  t.field("managedBy", &JobSpec::managed_by, "Controller that runs the job.");
  t.field("suspend", &JobSpec::suspend, "Stops the job's pods.");
  t.field("template", &JobSpec::pod_template, "The pods.").always();
  t.field("selector", &JobSpec::selector, "Labels of the pods.");
  t.field("podFailurePolicy", &JobSpec::pod_failure_policy, "Rules for failed pods.");
  t.field("successPolicy", &JobSpec::success_policy, "Rules for success.");
  t.field("backoffLimitPerIndex", &JobSpec::backoff_limit_per_index,
          "Failures of one index before the index counts as failed.");
  t.keep_unknown(&JobSpec::unknown);
}

void JobStatus::describe(Type<JobStatus>& t) {
  t.field("conditions", &JobStatus::conditions, "Conditions.");
  t.field("startTime", &JobStatus::start_time, "Time of the start.");
  t.field("completionTime", &JobStatus::completion_time, "Time of the success.");
  t.field("active", &JobStatus::active, "Pods that have not ended.");
  t.field("succeeded", &JobStatus::succeeded, "Pods that succeeded.");
  t.field("failed", &JobStatus::failed, "Pods that failed.");
  t.field("terminating", &JobStatus::terminating, "Terminating pods.");
  t.field("ready", &JobStatus::ready, "Active pods that are ready.");
  t.field("completedIndexes", &JobStatus::completed_indexes, "Indexes that succeeded.");
  t.field("uncountedTerminatedPods", &JobStatus::uncounted_terminated_pods,
          "Ended pods that are not counted yet.");
  t.keep_unknown(&JobStatus::unknown);
}

void Job::describe(Type<Job>& t) {
  t.field("metadata", &Job::metadata, "Metadata.");
  t.field("spec", &Job::spec, "Spec.");
  t.field("status", &Job::status, "Status.");
  t.keep_unknown(&Job::unknown);
}

const meta::Resource& Job::resource() { return meta::core::jobs(); }

Result<Job> Job::from_json(const Json& object) { return read_object<Job>(object); }
Json Job::to_json() const { return write_object(*this); }

}  // namespace varda::api
