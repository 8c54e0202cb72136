#include "apiserver/kinds/types.h"

namespace varda::apiserver::tables {

// core/v1 PodTemplateSpec and PodSpec: containers and placement of a pod. Containers and volumes
// have separate tables.
std::string_view pod() {
  return R"table(
package core/v1

type PodTemplateSpec # A template for pods.
  1 metadata meta ! # Labels and annotations of the pods.
  2 spec PodSpec ! # Spec of the pods.

type PodSpec # Containers, volumes and scheduling of a pod.
  1 volumes []Volume ~name ^ # Directories and files that containers may mount.
  20 initContainers []Container ~name # Containers that run to completion, in order, before the others start.
  2 containers []Container ~name ! # The containers of the pod; at least one.
  34 ephemeralContainers []EphemeralContainer ~name
  3 restartPolicy string =Always # Always, OnFailure or Never.
  4 terminationGracePeriodSeconds int64 * =30 # Seconds between the termination signal and the kill of a container.
  5 activeDeadlineSeconds int64 * # Seconds after the start until the pod fails.
  6 dnsPolicy string =ClusterFirst
  7 nodeSelector map:string # Labels the node must have.
  8 serviceAccountName string # The account the pod acts as.
  9 serviceAccount string
  21 automountServiceAccountToken bool *
  10 nodeName string # The node the pod is bound to.
  11 hostNetwork bool # Whether the pod uses the node's network.
  12 hostPID bool
  13 hostIPC bool
  27 shareProcessNamespace bool *
  14 securityContext PodSecurityContext ={}
  15 imagePullSecrets []LocalObjectReference ~name
  16 hostname string
  17 subdomain string
  18 affinity Affinity # Rules for choosing the node.
  19 schedulerName string =default-scheduler # The scheduler that binds the pod to a node.
  22 tolerations []Toleration # Taints of nodes that the pod tolerates.
  23 hostAliases []HostAlias ~ip
  24 priorityClassName string
  25 priority int32 *
  26 dnsConfig PodDNSConfig
  28 readinessGates []PodReadinessGate
  29 runtimeClassName string *
  30 enableServiceLinks bool *
  31 preemptionPolicy string *
  32 overhead map:quantity
  33 topologySpreadConstraints []TopologySpreadConstraint ~topologyKey
  35 setHostnameAsFQDN bool *
  36 os PodOS
  37 hostUsers bool *
  38 schedulingGates []PodSchedulingGate ~name
  39 resourceClaims []PodResourceClaim ~name ^
  40 resources ResourceRequirements

type PodSecurityContext
  1 seLinuxOptions SELinuxOptions
  8 windowsOptions WindowsSecurityContextOptions
  2 runAsUser int64 *
  6 runAsGroup int64 *
  3 runAsNonRoot bool *
  4 supplementalGroups []int64
  12 supplementalGroupsPolicy string *
  5 fsGroup int64 *
  7 sysctls []Sysctl
  9 fsGroupChangePolicy string *
  10 seccompProfile SeccompProfile
  11 appArmorProfile AppArmorProfile
  13 seLinuxChangePolicy string *

type Sysctl
  1 name string !
  2 value string !

type LocalObjectReference
  1 name string

type Affinity
  1 nodeAffinity NodeAffinity
  2 podAffinity PodAffinity
  3 podAntiAffinity PodAntiAffinity

type NodeAffinity
  1 requiredDuringSchedulingIgnoredDuringExecution NodeSelector
  2 preferredDuringSchedulingIgnoredDuringExecution []PreferredSchedulingTerm

type NodeSelector
  1 nodeSelectorTerms []NodeSelectorTerm !

type NodeSelectorTerm
  1 matchExpressions []NodeSelectorRequirement
  2 matchFields []NodeSelectorRequirement

type NodeSelectorRequirement
  1 key string !
  2 operator string !
  3 values []string

type PreferredSchedulingTerm
  1 weight int32 !
  2 preference NodeSelectorTerm !

type PodAffinity
  1 requiredDuringSchedulingIgnoredDuringExecution []PodAffinityTerm
  2 preferredDuringSchedulingIgnoredDuringExecution []WeightedPodAffinityTerm

type PodAntiAffinity
  1 requiredDuringSchedulingIgnoredDuringExecution []PodAffinityTerm
  2 preferredDuringSchedulingIgnoredDuringExecution []WeightedPodAffinityTerm

type WeightedPodAffinityTerm
  1 weight int32 !
  2 podAffinityTerm PodAffinityTerm !

type PodAffinityTerm
  1 labelSelector LabelSelector
  2 namespaces []string
  3 topologyKey string !
  4 namespaceSelector LabelSelector
  5 matchLabelKeys []string
  6 mismatchLabelKeys []string

type Toleration
  1 key string
  2 operator string
  3 value string
  4 effect string
  5 tolerationSeconds int64 *

type HostAlias
  1 ip string !
  2 hostnames []string

type PodDNSConfig
  1 nameservers []string
  2 searches []string
  3 options []PodDNSConfigOption

type PodDNSConfigOption
  1 name string
  2 value string *

type PodReadinessGate
  1 conditionType string !

type TopologySpreadConstraint
  1 maxSkew int32 !
  2 topologyKey string !
  3 whenUnsatisfiable string !
  4 labelSelector LabelSelector
  5 minDomains int32 *
  6 nodeAffinityPolicy string *
  7 nodeTaintsPolicy string *
  8 matchLabelKeys []string

type PodOS
  1 name string !

type PodSchedulingGate
  1 name string !

type PodResourceClaim
  1 name string !
  3 resourceClaimName string *
  4 resourceClaimTemplateName string *
)table";
}

}  // namespace varda::apiserver::tables
