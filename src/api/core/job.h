// Job (batch/v1): the fields that our controllers use. All other fields stay unchanged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/core/pod.h"
#include "meta/object.h"

namespace varda::api {

struct JobSpec {
  std::optional<std::int64_t> parallelism;  // absent means 1
  // Absent: the job ends after one success and the end of all pods.
  std::optional<std::int64_t> completions;
  std::optional<std::int64_t> backoff_limit, active_deadline_seconds, ttl_seconds_after_finished;
  std::string completion_mode;         // NonIndexed, Indexed; "" means NonIndexed
  std::string pod_replacement_policy;  // TerminatingOrFailed, Failed
  std::string managed_by;              // another controller's name
  bool suspend = false;
  PodTemplateSpec pod_template;
  Json selector, pod_failure_policy, success_policy, backoff_limit_per_index;
  Json unknown;

  bool indexed() const { return completion_mode == "Indexed"; }
  static void describe(Type<JobSpec>& t);
};

struct JobStatus {
  std::vector<CoreCondition> conditions;
  std::string start_time, completion_time;
  std::int64_t active = 0, succeeded = 0, failed = 0;
  std::optional<std::int64_t> terminating, ready;
  std::string completed_indexes;   // "0,2-4"
  Json uncounted_terminated_pods;  // {succeeded: [UID], failed: [UID]}
  Json unknown;
  static void describe(Type<JobStatus>& t);
};

struct Job {
  meta::ObjectMeta metadata;
  JobSpec spec;
  JobStatus status;
  Json unknown;

  static const meta::Resource& resource();
  static Result<Job> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<Job>& t);
};

}  // namespace varda::api
