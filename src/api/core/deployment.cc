#include "api/core/deployment.h"

#include "api/describe.h"
#include "meta/resources.h"

namespace varda::api {

void DeploymentSpec::describe(Type<DeploymentSpec>& t) {
  t.field("replicas", &DeploymentSpec::replicas, "Number of pods.");
  t.field("selector", &DeploymentSpec::selector, "Labels of the pods.").always();
  t.field("template", &DeploymentSpec::pod_template, "The pods.").always();
  t.field("strategy", &DeploymentSpec::strategy, "The way in which pods are replaced.");
  t.field("minReadySeconds", &DeploymentSpec::min_ready_seconds,
          "Seconds of readiness until a pod counts as available.");
  t.field("progressDeadlineSeconds", &DeploymentSpec::progress_deadline_seconds,
          "Seconds without progress until the rollout counts as failed.");
  t.field("revisionHistoryLimit", &DeploymentSpec::revision_history_limit,
          "Number of old templates to retain.");
  t.field("paused", &DeploymentSpec::paused, "Stops the rollout.");
  t.keep_unknown(&DeploymentSpec::unknown);
}

void DeploymentStatus::describe(Type<DeploymentStatus>& t) {
  t.field("observedGeneration", &DeploymentStatus::observed_generation,
          "Generation that this status describes.");
  t.field("replicas", &DeploymentStatus::replicas, "Pods.");
  t.field("updatedReplicas", &DeploymentStatus::updated_replicas, "Pods of the current template.");
  t.field("readyReplicas", &DeploymentStatus::ready_replicas, "Ready pods.");
  t.field("availableReplicas", &DeploymentStatus::available_replicas, "Available pods.");
  t.field("unavailableReplicas", &DeploymentStatus::unavailable_replicas,
          "Pods that are missing or unavailable.");
  t.field("conditions", &DeploymentStatus::conditions, "Conditions.");
  t.keep_unknown(&DeploymentStatus::unknown);
}

void Deployment::describe(Type<Deployment>& t) {
  t.field("metadata", &Deployment::metadata, "Metadata.");
  t.field("spec", &Deployment::spec, "Spec.");
  t.field("status", &Deployment::status, "Status.");
  t.keep_unknown(&Deployment::unknown);
}

const meta::Resource& Deployment::resource() { return meta::core::deployments(); }

Result<Deployment> Deployment::from_json(const Json& object) {
  return read_object<Deployment>(object);
}
Json Deployment::to_json() const { return write_object(*this); }

}  // namespace varda::api
