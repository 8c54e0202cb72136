// DaemonSet (apps/v1): the fields that our controllers use. All other fields stay unchanged.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "api/core/pod.h"
#include "meta/object.h"

namespace varda::api {

struct DaemonSetSpec {
  Json selector;  // {matchLabels, matchExpressions}
  PodTemplateSpec pod_template;
  Json update_strategy;  // {type, rollingUpdate: {maxUnavailable, maxSurge}}
  std::int64_t min_ready_seconds = 0;
  std::optional<std::int64_t> revision_history_limit;
  Json unknown;
  static void describe(Type<DaemonSetSpec>& t);
};

struct DaemonSetStatus {
  std::int64_t current_number_scheduled = 0;
  std::int64_t number_misscheduled = 0;
  std::int64_t desired_number_scheduled = 0;
  std::int64_t number_ready = 0;
  std::int64_t observed_generation = 0;
  std::int64_t updated_number_scheduled = 0;
  std::int64_t number_available = 0;
  std::int64_t number_unavailable = 0;
  Json unknown;
  static void describe(Type<DaemonSetStatus>& t);
};

struct DaemonSet {
  meta::ObjectMeta metadata;
  DaemonSetSpec spec;
  DaemonSetStatus status;
  Json unknown;

  static const meta::Resource& resource();
  static Result<DaemonSet> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<DaemonSet>& t);
};

}  // namespace varda::api
