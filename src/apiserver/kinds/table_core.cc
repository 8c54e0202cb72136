#include "apiserver/kinds/types.h"

namespace varda::apiserver::tables {

// The other kinds of core/v1, coordination.k8s.io/v1 and discovery.k8s.io/v1.
std::string_view core() {
  return R"table(
package core/v1

type Pod # A group of containers that run together on one node.
  spec PodSpec ! # What the pod runs.
  status PodStatus ! # What was last seen of it.

type PodStatus
  observedGeneration int64
  phase string # Pending, Running, Succeeded, Failed or Unknown.
  conditions []PodCondition ~type
  message string
  reason string
  nominatedNodeName string
  hostIP string
  hostIPs []HostIP
  podIP string
  podIPs []PodIP ~ip
  startTime time
  initContainerStatuses []ContainerStatus
  containerStatuses []ContainerStatus
  qosClass string
  ephemeralContainerStatuses []ContainerStatus
  resize string
  resourceClaimStatuses []any

type PodCondition
  type string !
  observedGeneration int64
  status string !
  lastProbeTime time !
  lastTransitionTime time !
  reason string
  message string

type HostIP
  ip string !

type PodIP
  ip string !

type ContainerStatus
  name string !
  state ContainerState !
  lastState ContainerState !
  ready bool !
  restartCount int32 !
  image string !
  imageID string !
  containerID string
  started bool *
  allocatedResources map:quantity
  resources ResourceRequirements
  volumeMounts []any
  user any
  allocatedResourcesStatus []any
  stopSignal string *

type ContainerState
  waiting ContainerStateWaiting
  running ContainerStateRunning
  terminated ContainerStateTerminated

type ContainerStateWaiting
  reason string
  message string

type ContainerStateRunning
  startedAt time

type ContainerStateTerminated
  exitCode int32 !
  signal int32
  reason string
  message string
  startedAt time !
  finishedAt time !
  containerID string

type Namespace # A scope for names.
  spec NamespaceSpec !
  status NamespaceStatus !

type NamespaceSpec
  finalizers []string

type NamespaceStatus
  phase string # Active or Terminating.
  conditions []NamespaceCondition ~type

type NamespaceCondition
  type string !
  status string !
  lastTransitionTime time
  reason string
  message string

type Node # A machine that runs pods.
  spec NodeSpec !
  status NodeStatus !

type NodeSpec
  podCIDR string
  podCIDRs []string ~
  providerID string
  unschedulable bool # No new pods are placed here.
  taints []Taint
  configSource any
  externalID string

type Taint
  key string !
  value string
  effect string ! # NoSchedule, PreferNoSchedule or NoExecute.
  timeAdded time

type NodeStatus
  capacity map:quantity
  allocatable map:quantity
  phase string
  conditions []NodeCondition ~type
  addresses []NodeAddress ~type
  daemonEndpoints NodeDaemonEndpoints !
  nodeInfo NodeSystemInfo !
  images []ContainerImage
  volumesInUse []string
  volumesAttached []any
  config any
  runtimeHandlers []any
  features any

type NodeCondition
  type string !
  status string !
  lastHeartbeatTime time !
  lastTransitionTime time !
  reason string
  message string

type NodeAddress
  type string !
  address string !

type NodeDaemonEndpoints
  kubeletEndpoint DaemonEndpoint !

type DaemonEndpoint
  Port int32 !

type NodeSystemInfo
  machineID string !
  systemUUID string !
  bootID string !
  kernelVersion string !
  osImage string !
  containerRuntimeVersion string !
  kubeletVersion string !
  kubeProxyVersion string !
  operatingSystem string !
  architecture string !
  swap any

type ContainerImage
  names []string !
  sizeBytes int64

type Service # A stable name and address for a set of pods.
  spec ServiceSpec !
  status ServiceStatus !

type ServiceSpec
  ports []ServicePort ~port
  selector map:string # Labels of the pods behind the service.
  clusterIP string
  clusterIPs []string
  type string =ClusterIP # ClusterIP, NodePort, LoadBalancer or ExternalName.
  externalIPs []string
  sessionAffinity string =None
  loadBalancerIP string
  loadBalancerSourceRanges []string
  externalName string
  externalTrafficPolicy string
  healthCheckNodePort int32
  publishNotReadyAddresses bool
  sessionAffinityConfig any
  ipFamilies []string
  ipFamilyPolicy string *
  allocateLoadBalancerNodePorts bool *
  loadBalancerClass string *
  internalTrafficPolicy string *
  trafficDistribution string *

type ServicePort
  name string # Required with more than one port.
  protocol string =TCP
  appProtocol string *
  port int32 !
  targetPort intstr
  nodePort int32

type ServiceStatus
  loadBalancer LoadBalancerStatus !
  conditions []Condition ~type

type LoadBalancerStatus
  ingress []any

type Endpoints # The addresses behind a service.
  subsets []EndpointSubset

type EndpointSubset
  addresses []EndpointAddress
  notReadyAddresses []EndpointAddress
  ports []EndpointPort

type EndpointAddress
  ip string !
  hostname string
  nodeName string *
  targetRef ObjectReference

type EndpointPort
  name string
  port int32 !
  protocol string =TCP
  appProtocol string *

type ObjectReference
  kind string
  namespace string
  name string
  uid string
  apiVersion string
  resourceVersion string
  fieldPath string

type ConfigMap # Configuration as key and value.
  immutable bool *
  data map:string
  binaryData map:bytes

type Secret # Configuration that only some may read.
  immutable bool *
  data map:bytes
  stringData map:string # Written as text; joins data.
  type string =Opaque

type ServiceAccount # An identity for pods.
  secrets []ObjectReference ~name
  imagePullSecrets []LocalObjectReference
  automountServiceAccountToken bool *

type Event # What happened to an object.
  involvedObject ObjectReference !
  reason string
  message string
  source EventSource !
  firstTimestamp time !
  lastTimestamp time !
  count int32
  type string
  eventTime microtime !
  series EventSeries
  action string
  related ObjectReference
  reportingComponent string !
  reportingInstance string !

type EventSource
  component string
  host string

type EventSeries
  count int32
  lastObservedTime microtime

package coordination/v1

type Lease # Who holds something, and until when.
  spec LeaseSpec !

type LeaseSpec
  holderIdentity string *
  leaseDurationSeconds int32 *
  acquireTime microtime
  renewTime microtime
  leaseTransitions int32 *
  strategy string *
  preferredHolder string *

package apimachinery/meta/v1

type ObjectMeta # Name, labels and history of an object.
  name string # Unique among objects of the kind in the namespace.
  generateName string # A prefix; the server makes the name unique.
  namespace string # The scope of the name.
  selfLink string
  uid string # Unique in time and space.
  resourceVersion string # Which state of the object this is; send it back to change only that state.
  generation int64 # Counts changes of the wanted state.
  creationTimestamp time !
  deletionTimestamp time
  deletionGracePeriodSeconds int64 *
  labels map:string # By which objects are selected.
  annotations map:string # Other data about the object.
  ownerReferences []OwnerReference ~uid # Objects without which this one goes away.
  finalizers []string ~ # Who must clean up before the object is gone.
  managedFields []any

type OwnerReference
  apiVersion string !
  kind string !
  name string !
  uid string !
  controller bool *
  blockOwnerDeletion bool *

type Condition
  type string !
  status string !
  observedGeneration int64
  lastTransitionTime time !
  reason string !
  message string !
)table";
}

}  // namespace varda::apiserver::tables
