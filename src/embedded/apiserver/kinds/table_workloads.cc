#include "apiserver/kinds/types.h"

namespace varda::apiserver::tables {

// apps/v1 and batch/v1.
std::string_view workloads() {
  return R"table(
package apps/v1

type Deployment # Keeps a number of equal pods running and replaces them step by step.
  2 spec DeploymentSpec !
  3 status DeploymentStatus !

type DeploymentSpec
  1 replicas int32 * =1 # Desired number of pods.
  2 selector LabelSelector # Labels of the deployment's pods; cannot change.
  3 template PodTemplateSpec ! # Template of the pods.
  4 strategy DeploymentStrategy ! ^ # The way in which old pods are replaced.
  5 minReadySeconds int32
  6 revisionHistoryLimit int32 * =10
  7 paused bool
  9 progressDeadlineSeconds int32 * =600

type DeploymentStrategy
  1 type string =RollingUpdate
  2 rollingUpdate RollingUpdateDeployment

type RollingUpdateDeployment
  1 maxUnavailable intstr *
  2 maxSurge intstr *

type DeploymentStatus
  1 observedGeneration int64
  2 replicas int32
  3 updatedReplicas int32
  7 readyReplicas int32
  4 availableReplicas int32
  5 unavailableReplicas int32
  9 terminatingReplicas int32 *
  6 conditions []DeploymentCondition ~type
  8 collisionCount int32 *

type DeploymentCondition
  1 type string !
  2 status string !
  6 lastUpdateTime time
  7 lastTransitionTime time
  4 reason string
  5 message string

type ReplicaSet # Keeps a number of equal pods running.
  2 spec ReplicaSetSpec !
  3 status ReplicaSetStatus !

type ReplicaSetSpec
  1 replicas int32 * =1
  4 minReadySeconds int32
  2 selector LabelSelector
  3 template PodTemplateSpec !

type ReplicaSetStatus
  1 replicas int32 !
  2 fullyLabeledReplicas int32
  4 readyReplicas int32
  5 availableReplicas int32
  7 terminatingReplicas int32 *
  3 observedGeneration int64
  6 conditions []WorkloadCondition ~type

type WorkloadCondition
  1 type string !
  2 status string !
  3 lastTransitionTime time
  4 reason string
  5 message string

type DaemonSet # Keeps one pod on every matching node.
  2 spec DaemonSetSpec !
  3 status DaemonSetStatus !

type DaemonSetSpec
  1 selector LabelSelector
  2 template PodTemplateSpec !
  3 updateStrategy DaemonSetUpdateStrategy !
  4 minReadySeconds int32
  6 revisionHistoryLimit int32 * =10

type DaemonSetUpdateStrategy
  1 type string =RollingUpdate
  2 rollingUpdate RollingUpdateDaemonSet

type RollingUpdateDaemonSet
  1 maxUnavailable intstr *
  2 maxSurge intstr *

type DaemonSetStatus
  1 currentNumberScheduled int32 !
  2 numberMisscheduled int32 !
  3 desiredNumberScheduled int32 !
  4 numberReady int32 !
  5 observedGeneration int64
  6 updatedNumberScheduled int32
  7 numberAvailable int32
  8 numberUnavailable int32
  9 collisionCount int32 *
  10 conditions []WorkloadCondition ~type

type ControllerRevision # An earlier template of a DaemonSet, for a rollback.
  2 data any # The part of the workload that made this revision; cannot change.
  3 revision int64 ! # Grows with each revision.

package batch/v1

type Job # Runs pods until enough of them have succeeded.
  2 spec JobSpec !
  3 status JobStatus !

type JobSpec
  1 parallelism int32 *
  2 completions int32 *
  3 activeDeadlineSeconds int64 *
  11 podFailurePolicy PodFailurePolicy
  16 successPolicy SuccessPolicy
  7 backoffLimit int32 *
  12 backoffLimitPerIndex int32 *
  13 maxFailedIndexes int32 *
  4 selector LabelSelector
  5 manualSelector bool *
  6 template PodTemplateSpec !
  8 ttlSecondsAfterFinished int32 *
  9 completionMode string * =NonIndexed
  10 suspend bool * =false
  14 podReplacementPolicy string *
  15 managedBy string *

type PodFailurePolicy
  1 rules []PodFailurePolicyRule !

type PodFailurePolicyRule
  1 action string !
  2 onExitCodes PodFailurePolicyOnExitCodesRequirement
  3 onPodConditions []PodFailurePolicyOnPodConditionsPattern

type PodFailurePolicyOnExitCodesRequirement
  1 containerName string *
  2 operator string !
  3 values []int32 !

type PodFailurePolicyOnPodConditionsPattern
  1 type string !
  2 status string ! =True

type SuccessPolicy
  1 rules []SuccessPolicyRule !

type SuccessPolicyRule
  1 succeededIndexes string *
  2 succeededCount int32 *

type UncountedTerminatedPods
  1 succeeded []string ~
  2 failed []string ~

type JobStatus
  1 conditions []JobCondition ~type
  2 startTime time
  3 completionTime time
  4 active int32
  5 succeeded int32
  6 failed int32
  11 terminating int32 *
  7 completedIndexes string
  10 failedIndexes string *
  8 uncountedTerminatedPods UncountedTerminatedPods
  9 ready int32 *

type JobCondition
  1 type string !
  2 status string !
  3 lastProbeTime time
  4 lastTransitionTime time
  5 reason string
  6 message string
)table";
}

}  // namespace varda::apiserver::tables
