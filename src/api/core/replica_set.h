// ReplicaSet (apps/v1): the fields that our controllers use. All other fields stay unchanged.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "api/core/pod.h"
#include "meta/object.h"

namespace varda::api {

struct ReplicaSetSpec {
  std::optional<std::int64_t> replicas;  // absent means 1
  std::int64_t min_ready_seconds = 0;
  Json selector;  // {matchLabels, matchExpressions}
  PodTemplateSpec pod_template;
  Json unknown;
  static void describe(Type<ReplicaSetSpec>& t);
};

struct ReplicaSetStatus {
  std::int64_t replicas = 0;
  std::int64_t fully_labeled_replicas = 0;
  std::int64_t ready_replicas = 0;
  std::int64_t available_replicas = 0;
  std::int64_t observed_generation = 0;
  std::vector<CoreCondition> conditions;
  Json unknown;
  static void describe(Type<ReplicaSetStatus>& t);
};

struct ReplicaSet {
  meta::ObjectMeta metadata;
  ReplicaSetSpec spec;
  ReplicaSetStatus status;
  Json unknown;

  static const meta::Resource& resource();
  static Result<ReplicaSet> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<ReplicaSet>& t);
};

}  // namespace varda::api
