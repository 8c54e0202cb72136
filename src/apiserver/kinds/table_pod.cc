#include "apiserver/kinds/types.h"

namespace varda::apiserver::tables {

// core/v1 PodTemplateSpec and everything below it.
std::string_view pod() {
  return R"table(
package core/v1

type PodTemplateSpec # What pods made from a template look like.
  metadata meta ! # Labels and annotations of the pods.
  spec PodSpec ! # What the pods run.

type PodSpec # What a pod runs, where and how.
  volumes []Volume ~name ^ # Directories and files that containers may mount.
  initContainers []Container ~name # Containers that run to completion, in order, before the others start.
  containers []Container ~name ! # The containers of the pod; at least one.
  ephemeralContainers []EphemeralContainer ~name
  restartPolicy string =Always # Always, OnFailure or Never.
  terminationGracePeriodSeconds int64 * =30 # Seconds between asking a container to end and killing it.
  activeDeadlineSeconds int64 * # Seconds after its start at which the pod is failed.
  dnsPolicy string =ClusterFirst
  nodeSelector map:string # Labels the node must have.
  serviceAccountName string # The account the pod acts as.
  serviceAccount string
  automountServiceAccountToken bool *
  nodeName string # The node the pod is bound to.
  hostNetwork bool # Whether the pod uses the node's network.
  hostPID bool
  hostIPC bool
  shareProcessNamespace bool *
  securityContext PodSecurityContext ={}
  imagePullSecrets []LocalObjectReference ~name
  hostname string
  subdomain string
  affinity Affinity # Rules for choosing the node.
  schedulerName string =default-scheduler # Who binds the pod to a node.
  tolerations []Toleration # Taints of nodes the pod bears.
  hostAliases []HostAlias ~ip
  priorityClassName string
  priority int32 *
  dnsConfig PodDNSConfig
  readinessGates []PodReadinessGate
  runtimeClassName string *
  enableServiceLinks bool *
  preemptionPolicy string *
  overhead map:quantity
  topologySpreadConstraints []TopologySpreadConstraint ~topologyKey
  setHostnameAsFQDN bool *
  os PodOS
  hostUsers bool *
  schedulingGates []PodSchedulingGate ~name
  resourceClaims []PodResourceClaim ~name ^
  resources ResourceRequirements

type Container # One process tree of a pod, with its image.
  name string ! # Unique within the pod; a DNS label.
  image string # Which image to run.
  command []string # Replaces the image's entry point.
  args []string # Arguments of the command.
  workingDir string
  ports []ContainerPort ~containerPort # Ports the container listens on.
  envFrom []EnvFromSource
  env []EnvVar ~name # Environment variables.
  resources ResourceRequirements ! # Compute resources asked for and allowed.
  resizePolicy []ContainerResizePolicy
  restartPolicy string *
  volumeMounts []VolumeMount ~mountPath # Volumes in the container's file system.
  volumeDevices []VolumeDevice ~devicePath
  livenessProbe Probe # When it fails the container is restarted.
  readinessProbe Probe # While it fails the pod is not ready.
  startupProbe Probe # Until it succeeds the other probes wait.
  lifecycle Lifecycle
  terminationMessagePath string =/dev/termination-log
  terminationMessagePolicy string =File
  imagePullPolicy string # Always, IfNotPresent or Never.
  securityContext SecurityContext
  stdin bool
  stdinOnce bool
  tty bool

type EphemeralContainer
  name string !
  image string
  command []string
  args []string
  workingDir string
  ports []ContainerPort ~containerPort
  envFrom []EnvFromSource
  env []EnvVar ~name
  resources ResourceRequirements !
  resizePolicy []ContainerResizePolicy
  restartPolicy string *
  volumeMounts []VolumeMount ~mountPath
  volumeDevices []VolumeDevice ~devicePath
  livenessProbe Probe
  readinessProbe Probe
  startupProbe Probe
  lifecycle Lifecycle
  terminationMessagePath string =/dev/termination-log
  terminationMessagePolicy string =File
  imagePullPolicy string
  securityContext SecurityContext
  stdin bool
  stdinOnce bool
  tty bool
  targetContainerName string

type ContainerPort
  name string # A name by which services refer to the port.
  hostPort int32
  containerPort int32 ! # 1 to 65535.
  protocol string =TCP # TCP, UDP or SCTP.
  hostIP string

type EnvFromSource
  prefix string
  configMapRef ConfigMapEnvSource
  secretRef SecretEnvSource

type ConfigMapEnvSource
  name string
  optional bool *

type SecretEnvSource
  name string
  optional bool *

type EnvVar
  name string !
  value string
  valueFrom EnvVarSource

type EnvVarSource
  fieldRef ObjectFieldSelector
  resourceFieldRef ResourceFieldSelector
  configMapKeyRef ConfigMapKeySelector
  secretKeyRef SecretKeySelector

type ObjectFieldSelector
  apiVersion string =v1
  fieldPath string !

type ResourceFieldSelector
  containerName string
  resource string !
  divisor quantity ="0"

type ConfigMapKeySelector
  name string
  key string !
  optional bool *

type SecretKeySelector
  name string
  key string !
  optional bool *

type ResourceRequirements
  limits map:quantity
  requests map:quantity
  claims []ResourceClaim

type ResourceClaim
  name string !
  request string

type ContainerResizePolicy
  resourceName string !
  restartPolicy string !

type VolumeMount
  name string !
  readOnly bool
  recursiveReadOnly string *
  mountPath string !
  subPath string
  mountPropagation string *
  subPathExpr string

type VolumeDevice
  name string !
  devicePath string !

type Probe
  exec ExecAction
  httpGet HTTPGetAction
  tcpSocket TCPSocketAction
  grpc GRPCAction
  initialDelaySeconds int32
  timeoutSeconds int32 =1
  periodSeconds int32 =10
  successThreshold int32 =1
  failureThreshold int32 =3
  terminationGracePeriodSeconds int64 *

type Lifecycle
  postStart LifecycleHandler
  preStop LifecycleHandler
  stopSignal string *

type LifecycleHandler
  exec ExecAction
  httpGet HTTPGetAction
  tcpSocket TCPSocketAction
  sleep SleepAction

type ExecAction
  command []string

type SleepAction
  seconds int64 !

type HTTPGetAction
  path string =/
  port intstr !
  host string
  scheme string =HTTP
  httpHeaders []HTTPHeader

type HTTPHeader
  name string !
  value string !

type TCPSocketAction
  port intstr !
  host string

type GRPCAction
  port int32 !
  service string * =""

type SecurityContext
  capabilities Capabilities
  privileged bool *
  seLinuxOptions SELinuxOptions
  windowsOptions WindowsSecurityContextOptions
  runAsUser int64 *
  runAsGroup int64 *
  runAsNonRoot bool *
  readOnlyRootFilesystem bool *
  allowPrivilegeEscalation bool *
  procMount string *
  seccompProfile SeccompProfile
  appArmorProfile AppArmorProfile

type Capabilities
  add []string
  drop []string

type SELinuxOptions
  user string
  role string
  type string
  level string

type WindowsSecurityContextOptions
  gmsaCredentialSpecName string *
  gmsaCredentialSpec string *
  runAsUserName string *
  hostProcess bool *

type SeccompProfile
  type string !
  localhostProfile string *

type AppArmorProfile
  type string !
  localhostProfile string *

type PodSecurityContext
  seLinuxOptions SELinuxOptions
  windowsOptions WindowsSecurityContextOptions
  runAsUser int64 *
  runAsGroup int64 *
  runAsNonRoot bool *
  supplementalGroups []int64
  supplementalGroupsPolicy string *
  fsGroup int64 *
  sysctls []Sysctl
  fsGroupChangePolicy string *
  seccompProfile SeccompProfile
  appArmorProfile AppArmorProfile
  seLinuxChangePolicy string *

type Sysctl
  name string !
  value string !

type LocalObjectReference
  name string

type Affinity
  nodeAffinity NodeAffinity
  podAffinity PodAffinity
  podAntiAffinity PodAntiAffinity

type NodeAffinity
  requiredDuringSchedulingIgnoredDuringExecution NodeSelector
  preferredDuringSchedulingIgnoredDuringExecution []PreferredSchedulingTerm

type NodeSelector
  nodeSelectorTerms []NodeSelectorTerm !

type NodeSelectorTerm
  matchExpressions []NodeSelectorRequirement
  matchFields []NodeSelectorRequirement

type NodeSelectorRequirement
  key string !
  operator string !
  values []string

type PreferredSchedulingTerm
  weight int32 !
  preference NodeSelectorTerm !

type PodAffinity
  requiredDuringSchedulingIgnoredDuringExecution []PodAffinityTerm
  preferredDuringSchedulingIgnoredDuringExecution []WeightedPodAffinityTerm

type PodAntiAffinity
  requiredDuringSchedulingIgnoredDuringExecution []PodAffinityTerm
  preferredDuringSchedulingIgnoredDuringExecution []WeightedPodAffinityTerm

type WeightedPodAffinityTerm
  weight int32 !
  podAffinityTerm PodAffinityTerm !

type PodAffinityTerm
  labelSelector LabelSelector
  namespaces []string
  topologyKey string !
  namespaceSelector LabelSelector
  matchLabelKeys []string
  mismatchLabelKeys []string

type Toleration
  key string
  operator string
  value string
  effect string
  tolerationSeconds int64 *

type HostAlias
  ip string !
  hostnames []string

type PodDNSConfig
  nameservers []string
  searches []string
  options []PodDNSConfigOption

type PodDNSConfigOption
  name string
  value string *

type PodReadinessGate
  conditionType string !

type TopologySpreadConstraint
  maxSkew int32 !
  topologyKey string !
  whenUnsatisfiable string !
  labelSelector LabelSelector
  minDomains int32 *
  nodeAffinityPolicy string *
  nodeTaintsPolicy string *
  matchLabelKeys []string

type PodOS
  name string !

type PodSchedulingGate
  name string !

type PodResourceClaim
  name string !
  resourceClaimName string *
  resourceClaimTemplateName string *

type Volume
  name string !
  hostPath HostPathVolumeSource
  emptyDir EmptyDirVolumeSource
  gcePersistentDisk any
  awsElasticBlockStore any
  gitRepo any
  secret SecretVolumeSource
  nfs NFSVolumeSource
  iscsi any
  glusterfs any
  persistentVolumeClaim PersistentVolumeClaimVolumeSource
  rbd any
  flexVolume any
  cinder any
  cephfs any
  flocker any
  downwardAPI DownwardAPIVolumeSource
  fc any
  azureFile any
  configMap ConfigMapVolumeSource
  vsphereVolume any
  quobyte any
  azureDisk any
  photonPersistentDisk any
  projected ProjectedVolumeSource
  portworxVolume any
  scaleIO any
  storageos any
  csi CSIVolumeSource
  ephemeral any
  image ImageVolumeSource

type HostPathVolumeSource
  path string !
  type string * =""

type EmptyDirVolumeSource
  medium string
  sizeLimit quantity *

type SecretVolumeSource
  secretName string
  items []KeyToPath
  defaultMode int32 * =420
  optional bool *

type NFSVolumeSource
  server string !
  path string !
  readOnly bool

type PersistentVolumeClaimVolumeSource
  claimName string !
  readOnly bool

type ConfigMapVolumeSource
  name string
  items []KeyToPath
  defaultMode int32 * =420
  optional bool *

type KeyToPath
  key string !
  path string !
  mode int32 *

type DownwardAPIVolumeSource
  items []DownwardAPIVolumeFile
  defaultMode int32 * =420

type DownwardAPIVolumeFile
  path string !
  fieldRef ObjectFieldSelector
  resourceFieldRef ResourceFieldSelector
  mode int32 *

type ProjectedVolumeSource
  sources []VolumeProjection !
  defaultMode int32 * =420

type VolumeProjection
  secret SecretProjection
  downwardAPI DownwardAPIProjection
  configMap ConfigMapProjection
  serviceAccountToken ServiceAccountTokenProjection
  clusterTrustBundle any

type SecretProjection
  name string
  items []KeyToPath
  optional bool *

type ConfigMapProjection
  name string
  items []KeyToPath
  optional bool *

type DownwardAPIProjection
  items []DownwardAPIVolumeFile

type ServiceAccountTokenProjection
  audience string
  expirationSeconds int64 * =3600
  path string !

type CSIVolumeSource
  driver string !
  readOnly bool *
  fsType string *
  volumeAttributes map:string
  nodePublishSecretRef LocalObjectReference

type ImageVolumeSource
  reference string
  pullPolicy string

package apimachinery/meta/v1

type LabelSelector
  matchLabels map:string
  matchExpressions []LabelSelectorRequirement

type LabelSelectorRequirement
  key string !
  operator string !
  values []string
)table";
}

}  // namespace varda::apiserver::tables
