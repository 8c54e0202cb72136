#include "api/core/daemon_set.h"

#include "api/describe.h"
#include "meta/resources.h"

namespace varda::api {

void DaemonSetSpec::describe(Type<DaemonSetSpec>& t) {
  t.field("selector", &DaemonSetSpec::selector, "Labels of the pods.").always();
  t.field("template", &DaemonSetSpec::pod_template, "The pods.").always();
  t.field("updateStrategy", &DaemonSetSpec::update_strategy, "The way in which pods are replaced.");
  t.field("minReadySeconds", &DaemonSetSpec::min_ready_seconds,
          "Seconds of readiness until a pod counts as available.");
  t.field("revisionHistoryLimit", &DaemonSetSpec::revision_history_limit,
          "Number of old templates to retain.");
  t.keep_unknown(&DaemonSetSpec::unknown);
}

void DaemonSetStatus::describe(Type<DaemonSetStatus>& t) {
  t.field("currentNumberScheduled", &DaemonSetStatus::current_number_scheduled,
          "Nodes that should run a pod and run one.")
      .always();
  t.field("numberMisscheduled", &DaemonSetStatus::number_misscheduled,
          "Nodes that run a pod and should run none.")
      .always();
  t.field("desiredNumberScheduled", &DaemonSetStatus::desired_number_scheduled,
          "Nodes that should run a pod.")
      .always();
  t.field("numberReady", &DaemonSetStatus::number_ready, "Nodes with a ready pod.").always();
  t.field("observedGeneration", &DaemonSetStatus::observed_generation,
          "Generation that this status describes.");
  t.field("updatedNumberScheduled", &DaemonSetStatus::updated_number_scheduled,
          "Nodes with a pod of the current template.");
  t.field("numberAvailable", &DaemonSetStatus::number_available, "Nodes with an available pod.");
  t.field("numberUnavailable", &DaemonSetStatus::number_unavailable,
          "Nodes without an available pod.");
  t.keep_unknown(&DaemonSetStatus::unknown);
}

void DaemonSet::describe(Type<DaemonSet>& t) {
  t.field("metadata", &DaemonSet::metadata, "Metadata.");
  t.field("spec", &DaemonSet::spec, "Spec.");
  t.field("status", &DaemonSet::status, "Status.");
  t.keep_unknown(&DaemonSet::unknown);
}

const meta::Resource& DaemonSet::resource() { return meta::core::daemon_sets(); }

Result<DaemonSet> DaemonSet::from_json(const Json& object) {
  return read_object<DaemonSet>(object);
}
Json DaemonSet::to_json() const { return write_object(*this); }

}  // namespace varda::api
