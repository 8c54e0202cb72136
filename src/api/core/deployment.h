// Deployment (apps/v1): the fields that our controllers use. All other fields stay unchanged.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/core/pod.h"
#include "meta/object.h"

namespace varda::api {

struct DeploymentSpec {
  std::optional<std::int64_t> replicas;  // absent means 1
  Json selector;                         // {matchLabels, matchExpressions}
  PodTemplateSpec pod_template;
  Json strategy;  // {type, rollingUpdate: {maxUnavailable, maxSurge}}
  std::int64_t min_ready_seconds = 0;
  std::optional<std::int64_t> progress_deadline_seconds, revision_history_limit;
  bool paused = false;
  Json unknown;
  static void describe(Type<DeploymentSpec>& t);
};

struct DeploymentStatus {
  std::int64_t observed_generation = 0;
  std::int64_t replicas = 0;
  std::int64_t updated_replicas = 0;
  std::int64_t ready_replicas = 0;
  std::int64_t available_replicas = 0;
  std::int64_t unavailable_replicas = 0;
  std::vector<CoreCondition> conditions;
  Json unknown;
  static void describe(Type<DeploymentStatus>& t);
};

struct Deployment {
  meta::ObjectMeta metadata;
  DeploymentSpec spec;
  DeploymentStatus status;
  Json unknown;

  static const meta::Resource& resource();
  static Result<Deployment> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<Deployment>& t);
};

}  // namespace varda::api
