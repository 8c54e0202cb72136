#include "api/core/replica_set.h"

#include "api/describe.h"
#include "meta/resources.h"

namespace varda::api {

void ReplicaSetSpec::describe(Type<ReplicaSetSpec>& t) {
  t.field("replicas", &ReplicaSetSpec::replicas, "Number of pods.");
  t.field("minReadySeconds", &ReplicaSetSpec::min_ready_seconds,
          "Seconds of readiness until a pod counts as available.");
  t.field("selector", &ReplicaSetSpec::selector, "Labels of the pods.").always();
  t.field("template", &ReplicaSetSpec::pod_template, "The pods.").always();
  t.keep_unknown(&ReplicaSetSpec::unknown);
}

void ReplicaSetStatus::describe(Type<ReplicaSetStatus>& t) {
  t.field("replicas", &ReplicaSetStatus::replicas, "Pods.").always();
  t.field("fullyLabeledReplicas", &ReplicaSetStatus::fully_labeled_replicas,
          "Pods with all labels of the template.");
  t.field("readyReplicas", &ReplicaSetStatus::ready_replicas, "Ready pods.");
  t.field("availableReplicas", &ReplicaSetStatus::available_replicas, "Available pods.");
  t.field("observedGeneration", &ReplicaSetStatus::observed_generation,
          "Generation that this status describes.");
  t.field("conditions", &ReplicaSetStatus::conditions, "Conditions.");
  t.keep_unknown(&ReplicaSetStatus::unknown);
}

void ReplicaSet::describe(Type<ReplicaSet>& t) {
  t.field("metadata", &ReplicaSet::metadata, "Metadata.");
  t.field("spec", &ReplicaSet::spec, "Spec.");
  t.field("status", &ReplicaSet::status, "Status.");
  t.keep_unknown(&ReplicaSet::unknown);
}

const meta::Resource& ReplicaSet::resource() { return meta::core::replica_sets(); }

Result<ReplicaSet> ReplicaSet::from_json(const Json& object) {
  return read_object<ReplicaSet>(object);
}
Json ReplicaSet::to_json() const { return write_object(*this); }

}  // namespace varda::api
