#include "apiserver/kinds/types.h"

namespace varda::apiserver::tables {

// The other kinds of core/v1, coordination.k8s.io/v1 and discovery.k8s.io/v1.
std::string_view core() {
  return R"table(
package core/v1

type Pod # A group of containers that run together on one node.
  2 spec PodSpec ! # Containers, volumes and scheduling of the pod.
  3 status PodStatus ! # The last reported state.

type PodStatus
  17 observedGeneration int64
  1 phase string # Pending, Running, Succeeded, Failed or Unknown.
  2 conditions []PodCondition ~type
  3 message string
  4 reason string
  11 nominatedNodeName string
  5 hostIP string
  16 hostIPs []HostIP
  6 podIP string
  12 podIPs []PodIP ~ip
  7 startTime time
  10 initContainerStatuses []ContainerStatus
  8 containerStatuses []ContainerStatus
  9 qosClass string
  13 ephemeralContainerStatuses []ContainerStatus
  14 resize string
  15 resourceClaimStatuses []any

type PodCondition
  1 type string !
  7 observedGeneration int64
  2 status string !
  3 lastProbeTime time !
  4 lastTransitionTime time !
  5 reason string
  6 message string

type HostIP
  1 ip string !

type PodIP
  1 ip string !

type ContainerStatus
  1 name string !
  2 state ContainerState !
  3 lastState ContainerState !
  4 ready bool !
  5 restartCount int32 !
  6 image string !
  7 imageID string !
  8 containerID string
  9 started bool *
  10 allocatedResources map:quantity
  11 resources ResourceRequirements
  12 volumeMounts []any
  13 user any
  14 allocatedResourcesStatus []any
  15 stopSignal string *

type ContainerState
  1 waiting ContainerStateWaiting
  2 running ContainerStateRunning
  3 terminated ContainerStateTerminated

type ContainerStateWaiting
  1 reason string
  2 message string

type ContainerStateRunning
  1 startedAt time

type ContainerStateTerminated
  1 exitCode int32 !
  2 signal int32
  3 reason string
  4 message string
  5 startedAt time !
  6 finishedAt time !
  7 containerID string

type Namespace # A scope for names.
  2 spec NamespaceSpec !
  3 status NamespaceStatus !

type NamespaceSpec
  1 finalizers []string

type NamespaceStatus
  1 phase string # Active or Terminating.
  2 conditions []NamespaceCondition ~type

type NamespaceCondition
  1 type string !
  2 status string !
  4 lastTransitionTime time
  5 reason string
  6 message string

type Node # A machine that runs pods.
  2 spec NodeSpec !
  3 status NodeStatus !

type NodeSpec
  1 podCIDR string
  7 podCIDRs []string ~
  3 providerID string
  4 unschedulable bool # No new pods are placed here.
  5 taints []Taint
  6 configSource any
  2 externalID string

type Taint
  1 key string !
  2 value string
  3 effect string ! # NoSchedule, PreferNoSchedule or NoExecute.
  4 timeAdded time

type NodeStatus
  1 capacity map:quantity
  2 allocatable map:quantity
  3 phase string
  4 conditions []NodeCondition ~type
  5 addresses []NodeAddress ~type
  6 daemonEndpoints NodeDaemonEndpoints !
  7 nodeInfo NodeSystemInfo !
  8 images []ContainerImage
  9 volumesInUse []string
  10 volumesAttached []any
  11 config any
  12 runtimeHandlers []any
  13 features any

type NodeCondition
  1 type string !
  2 status string !
  3 lastHeartbeatTime time !
  4 lastTransitionTime time !
  5 reason string
  6 message string

type NodeAddress
  1 type string !
  2 address string !

type NodeDaemonEndpoints
  1 kubeletEndpoint DaemonEndpoint !

type DaemonEndpoint
  1 Port int32 !

type NodeSystemInfo
  1 machineID string !
  2 systemUUID string !
  3 bootID string !
  4 kernelVersion string !
  5 osImage string !
  6 containerRuntimeVersion string !
  7 kubeletVersion string !
  8 kubeProxyVersion string !
  9 operatingSystem string !
  10 architecture string !
  11 swap any

type ContainerImage
  1 names []string !
  2 sizeBytes int64

type Service # A stable name and address for a set of pods.
  2 spec ServiceSpec !
  3 status ServiceStatus !

type ServiceSpec
  1 ports []ServicePort ~port
  2 selector map:string # Labels of the pods behind the service.
  3 clusterIP string
  18 clusterIPs []string
  4 type string =ClusterIP # ClusterIP, NodePort, LoadBalancer or ExternalName.
  5 externalIPs []string
  7 sessionAffinity string =None
  8 loadBalancerIP string
  9 loadBalancerSourceRanges []string
  10 externalName string
  11 externalTrafficPolicy string
  12 healthCheckNodePort int32
  13 publishNotReadyAddresses bool
  14 sessionAffinityConfig SessionAffinityConfig
  19 ipFamilies []string
  17 ipFamilyPolicy string *
  20 allocateLoadBalancerNodePorts bool *
  21 loadBalancerClass string *
  22 internalTrafficPolicy string *
  23 trafficDistribution string *

type ServicePort
  1 name string # Required with more than one port.
  2 protocol string =TCP
  6 appProtocol string *
  3 port int32 !
  4 targetPort intstr
  5 nodePort int32

type ServiceStatus
  1 loadBalancer LoadBalancerStatus !
  2 conditions []Condition ~type

type LoadBalancerStatus
  1 ingress []LoadBalancerIngress

type LoadBalancerIngress
  1 ip string
  2 hostname string
  3 ipMode string *
  4 ports []PortStatus

type PortStatus
  1 port int32 !
  2 protocol string !
  3 error string *

type SessionAffinityConfig
  1 clientIP ClientIPConfig

type ClientIPConfig
  1 timeoutSeconds int32 *

type Endpoints # The addresses behind a service.
  2 subsets []EndpointSubset

type EndpointSubset
  1 addresses []EndpointAddress
  2 notReadyAddresses []EndpointAddress
  3 ports []EndpointPort

type EndpointAddress
  1 ip string !
  3 hostname string
  4 nodeName string *
  2 targetRef ObjectReference

type EndpointPort
  1 name string
  2 port int32 !
  3 protocol string =TCP
  4 appProtocol string *

type ObjectReference
  1 kind string
  2 namespace string
  3 name string
  4 uid string
  5 apiVersion string
  6 resourceVersion string
  7 fieldPath string

type ConfigMap # Configuration as key and value.
  4 immutable bool *
  2 data map:string
  3 binaryData map:bytes

type Secret # Confidential configuration.
  5 immutable bool *
  2 data map:bytes
  4 stringData map:string # Plain text, merged into data on write.
  3 type string =Opaque

type ServiceAccount # An identity for pods.
  2 secrets []ObjectReference ~name
  3 imagePullSecrets []LocalObjectReference
  4 automountServiceAccountToken bool *

type Event # A report about an object.
  2 involvedObject ObjectReference !
  3 reason string
  4 message string
  5 source EventSource !
  6 firstTimestamp time !
  7 lastTimestamp time !
  8 count int32
  9 type string
  10 eventTime microtime !
  11 series EventSeries
  12 action string
  13 related ObjectReference
  14 reportingComponent string !
  15 reportingInstance string !

type EventSource
  1 component string
  2 host string

type EventSeries
  1 count int32
  2 lastObservedTime microtime

package coordination/v1

type Lease # Names the holder of a lock, and when the lock expires.
  2 spec LeaseSpec !

type LeaseSpec
  1 holderIdentity string *
  2 leaseDurationSeconds int32 *
  3 acquireTime microtime
  4 renewTime microtime
  5 leaseTransitions int32 *
  6 strategy string *
  7 preferredHolder string *

package discovery/v1

type EndpointSlice # Addresses of some pods of a service.
  4 addressType string ! # IPv4, IPv6 or FQDN.
  2 endpoints []SliceEndpoint !
  3 ports []SlicePort

type SliceEndpoint
  1 addresses []string !
  2 conditions SliceConditions !
  3 hostname string *
  4 targetRef ObjectReference
  5 deprecatedTopology map:string
  6 nodeName string *
  7 zone string *
  8 hints any

type SliceConditions
  1 ready bool *
  2 serving bool *
  3 terminating bool *

type SlicePort
  1 name string *
  2 protocol string * =TCP
  3 port int32 *
  4 appProtocol string *
)table";
}

}  // namespace varda::apiserver::tables
