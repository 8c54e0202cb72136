#include "apiserver/kinds/types.h"

namespace varda::apiserver::tables {

// core/v1 Container and everything below it.
std::string_view container() {
  return R"table(
package core/v1

type Container # One process tree of a pod, with its image.
  1 name string ! # Unique within the pod; a DNS label.
  2 image string # The image to run.
  3 command []string # Replaces the image's entry point.
  4 args []string # Arguments of the command.
  5 workingDir string
  6 ports []ContainerPort ~containerPort # Ports the container listens on.
  19 envFrom []EnvFromSource
  7 env []EnvVar ~name # Environment variables.
  8 resources ResourceRequirements ! # Requested and allowed compute resources.
  23 resizePolicy []ContainerResizePolicy
  24 restartPolicy string *
  9 volumeMounts []VolumeMount ~mountPath # Volumes in the container's file system.
  21 volumeDevices []VolumeDevice ~devicePath
  10 livenessProbe Probe # A failure restarts the container.
  11 readinessProbe Probe # The pod is not ready while the probe fails.
  22 startupProbe Probe # The other probes wait until this one succeeds.
  12 lifecycle Lifecycle
  13 terminationMessagePath string =/dev/termination-log
  20 terminationMessagePolicy string =File
  14 imagePullPolicy string # Always, IfNotPresent or Never.
  15 securityContext SecurityContext
  16 stdin bool
  17 stdinOnce bool
  18 tty bool

type EphemeralContainer
  1.1 name string !
  1.2 image string
  1.3 command []string
  1.4 args []string
  1.5 workingDir string
  1.6 ports []ContainerPort ~containerPort
  1.19 envFrom []EnvFromSource
  1.7 env []EnvVar ~name
  1.8 resources ResourceRequirements !
  1.23 resizePolicy []ContainerResizePolicy
  1.24 restartPolicy string *
  1.9 volumeMounts []VolumeMount ~mountPath
  1.21 volumeDevices []VolumeDevice ~devicePath
  1.10 livenessProbe Probe
  1.11 readinessProbe Probe
  1.22 startupProbe Probe
  1.12 lifecycle Lifecycle
  1.13 terminationMessagePath string =/dev/termination-log
  1.20 terminationMessagePolicy string =File
  1.14 imagePullPolicy string
  1.15 securityContext SecurityContext
  1.16 stdin bool
  1.17 stdinOnce bool
  1.18 tty bool
  2 targetContainerName string

type ContainerPort
  1 name string # Name of the port; services may refer to it.
  2 hostPort int32
  3 containerPort int32 ! # 1 to 65535.
  4 protocol string =TCP # TCP, UDP or SCTP.
  5 hostIP string

type EnvFromSource
  1 prefix string
  2 configMapRef ConfigMapEnvSource
  3 secretRef SecretEnvSource

type ConfigMapEnvSource
  1.1 name string
  2 optional bool *

type SecretEnvSource
  1.1 name string
  2 optional bool *

type EnvVar
  1 name string !
  2 value string
  3 valueFrom EnvVarSource

type EnvVarSource
  1 fieldRef ObjectFieldSelector
  2 resourceFieldRef ResourceFieldSelector
  3 configMapKeyRef ConfigMapKeySelector
  4 secretKeyRef SecretKeySelector

type ObjectFieldSelector
  1 apiVersion string =v1
  2 fieldPath string !

type ResourceFieldSelector
  1 containerName string
  2 resource string !
  3 divisor quantity ="0"

type ConfigMapKeySelector
  1.1 name string
  2 key string !
  3 optional bool *

type SecretKeySelector
  1.1 name string
  2 key string !
  3 optional bool *

type ResourceRequirements
  1 limits map:quantity
  2 requests map:quantity
  3 claims []ResourceClaim

type ResourceClaim
  1 name string !
  2 request string

type ContainerResizePolicy
  1 resourceName string !
  2 restartPolicy string !

type VolumeMount
  1 name string !
  2 readOnly bool
  7 recursiveReadOnly string *
  3 mountPath string !
  4 subPath string
  5 mountPropagation string *
  6 subPathExpr string

type VolumeDevice
  1 name string !
  2 devicePath string !

type Probe
  1.1 exec ExecAction
  1.2 httpGet HTTPGetAction
  1.3 tcpSocket TCPSocketAction
  1.4 grpc GRPCAction
  2 initialDelaySeconds int32
  3 timeoutSeconds int32 =1
  4 periodSeconds int32 =10
  5 successThreshold int32 =1
  6 failureThreshold int32 =3
  7 terminationGracePeriodSeconds int64 *

type Lifecycle
  1 postStart LifecycleHandler
  2 preStop LifecycleHandler
  3 stopSignal string *

type LifecycleHandler
  1 exec ExecAction
  2 httpGet HTTPGetAction
  3 tcpSocket TCPSocketAction
  4 sleep SleepAction

type ExecAction
  1 command []string

type SleepAction
  1 seconds int64 !

type HTTPGetAction
  1 path string =/
  2 port intstr !
  3 host string
  4 scheme string =HTTP
  5 httpHeaders []HTTPHeader

type HTTPHeader
  1 name string !
  2 value string !

type TCPSocketAction
  1 port intstr !
  2 host string

type GRPCAction
  1 port int32 !
  2 service string * =""

type SecurityContext
  1 capabilities Capabilities
  2 privileged bool *
  3 seLinuxOptions SELinuxOptions
  10 windowsOptions WindowsSecurityContextOptions
  4 runAsUser int64 *
  8 runAsGroup int64 *
  5 runAsNonRoot bool *
  6 readOnlyRootFilesystem bool *
  7 allowPrivilegeEscalation bool *
  9 procMount string *
  11 seccompProfile SeccompProfile
  12 appArmorProfile AppArmorProfile

type Capabilities
  1 add []string
  2 drop []string

type SELinuxOptions
  1 user string
  2 role string
  3 type string
  4 level string

type WindowsSecurityContextOptions
  1 gmsaCredentialSpecName string *
  2 gmsaCredentialSpec string *
  3 runAsUserName string *
  4 hostProcess bool *

type SeccompProfile
  1 type string !
  2 localhostProfile string *

type AppArmorProfile
  1 type string !
  2 localhostProfile string *
)table";
}

}  // namespace varda::apiserver::tables
