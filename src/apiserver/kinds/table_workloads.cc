#include "apiserver/kinds/types.h"

namespace varda::apiserver::tables {

// apps/v1 and batch/v1.
std::string_view workloads() {
  return R"table(
package apps/v1

type Deployment # Keeps a number of equal pods running and replaces them step by step.
  spec DeploymentSpec !
  status DeploymentStatus !

type DeploymentSpec
  replicas int32 * =1 # How many pods are wanted.
  selector LabelSelector # Which pods belong to the deployment; cannot change.
  template PodTemplateSpec ! # What the pods look like.
  strategy DeploymentStrategy ! ^ # How old pods are replaced.
  minReadySeconds int32
  revisionHistoryLimit int32 * =10
  paused bool
  progressDeadlineSeconds int32 * =600

type DeploymentStrategy
  type string =RollingUpdate
  rollingUpdate RollingUpdateDeployment

type RollingUpdateDeployment
  maxUnavailable intstr *
  maxSurge intstr *

type DeploymentStatus
  observedGeneration int64
  replicas int32
  updatedReplicas int32
  readyReplicas int32
  availableReplicas int32
  unavailableReplicas int32
  terminatingReplicas int32 *
  conditions []DeploymentCondition ~type
  collisionCount int32 *

type DeploymentCondition
  type string !
  status string !
  lastUpdateTime time
  lastTransitionTime time
  reason string
  message string

type ReplicaSet # Keeps a number of equal pods running.
  spec ReplicaSetSpec !
  status ReplicaSetStatus !

type ReplicaSetSpec
  replicas int32 * =1
  minReadySeconds int32
  selector LabelSelector
  template PodTemplateSpec !

type ReplicaSetStatus
  replicas int32 !
  fullyLabeledReplicas int32
  readyReplicas int32
  availableReplicas int32
  terminatingReplicas int32 *
  observedGeneration int64
  conditions []WorkloadCondition ~type

type WorkloadCondition
  type string !
  status string !
  lastTransitionTime time
  reason string
  message string

type DaemonSet # Keeps one pod on every matching node.
  spec DaemonSetSpec !
  status DaemonSetStatus !

type DaemonSetSpec
  selector LabelSelector
  template PodTemplateSpec !
  updateStrategy DaemonSetUpdateStrategy !
  minReadySeconds int32
  revisionHistoryLimit int32 * =10

type DaemonSetUpdateStrategy
  type string =RollingUpdate
  rollingUpdate RollingUpdateDaemonSet

type RollingUpdateDaemonSet
  maxUnavailable intstr *
  maxSurge intstr *

type DaemonSetStatus
  currentNumberScheduled int32 !
  numberMisscheduled int32 !
  desiredNumberScheduled int32 !
  numberReady int32 !
  observedGeneration int64
  updatedNumberScheduled int32
  numberAvailable int32
  numberUnavailable int32
  collisionCount int32 *
  conditions []WorkloadCondition ~type

type ControllerRevision # One state a DaemonSet had, kept to go back to.
  data any # The part of the workload that made this revision; cannot change.
  revision int64 ! # Grows with every new state.

package batch/v1

type Job # Runs pods until enough of them have succeeded.
  spec JobSpec !
  status JobStatus !

type JobSpec
  parallelism int32 *
  completions int32 *
  activeDeadlineSeconds int64 *
  podFailurePolicy any
  successPolicy any
  backoffLimit int32 *
  backoffLimitPerIndex int32 *
  maxFailedIndexes int32 *
  selector LabelSelector
  manualSelector bool *
  template PodTemplateSpec !
  ttlSecondsAfterFinished int32 *
  completionMode string * =NonIndexed
  suspend bool * =false
  podReplacementPolicy string *
  managedBy string *

type JobStatus
  conditions []JobCondition ~type
  startTime time
  completionTime time
  active int32
  succeeded int32
  failed int32
  terminating int32 *
  completedIndexes string
  failedIndexes string *
  uncountedTerminatedPods any
  ready int32 *

type JobCondition
  type string !
  status string !
  lastProbeTime time
  lastTransitionTime time
  reason string
  message string
)table";
}

}  // namespace varda::apiserver::tables
