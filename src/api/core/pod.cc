#include "api/core/pod.h"

#include "api/describe.h"

namespace varda::api {

void EnvVar::describe(Type<EnvVar>& t) {
  t.field("name", &EnvVar::name, "Name of the variable.").required();
  t.field("value", &EnvVar::value, "Its value; $(NAME) refers to earlier ones.");
  t.field("valueFrom", &EnvVar::value_from, "Where the value comes from.");
  t.keep_unknown(&EnvVar::unknown);
}

void ContainerPort::describe(Type<ContainerPort>& t) {
  t.field("name", &ContainerPort::name, "Name of the port.");
  t.field("containerPort", &ContainerPort::container_port, "Port in the pod.").required();
  t.field("hostPort", &ContainerPort::host_port, "Port on the node.");
  t.field("protocol", &ContainerPort::protocol, "TCP or UDP.");
  t.keep_unknown(&ContainerPort::unknown);
}

void VolumeMount::describe(Type<VolumeMount>& t) {
  t.field("name", &VolumeMount::name, "Name of the volume.").required();
  t.field("mountPath", &VolumeMount::mount_path, "Where it is mounted.").required();
  t.field("readOnly", &VolumeMount::read_only, "Not writable.");
  t.field("subPath", &VolumeMount::sub_path, "The part of the volume.");
  t.keep_unknown(&VolumeMount::unknown);
}

void Container::describe(Type<Container>& t) {
  t.field("name", &Container::name, "Name of the container.").required();
  t.field("image", &Container::image, "Its image.");
  t.field("command", &Container::command, "Program instead of the image's.");
  t.field("args", &Container::args, "Arguments.");
  t.field("workingDir", &Container::working_dir, "Directory it starts in.");
  t.field("env", &Container::env, "Environment.");
  t.field("ports", &Container::ports, "Ports it listens on.");
  t.field("volumeMounts", &Container::volume_mounts, "Mounted volumes.");
  t.field("resources", &Container::resources, "Requests and limits.");
  t.field("readinessProbe", &Container::readiness_probe, "When it is ready.");
  t.field("livenessProbe", &Container::liveness_probe, "When it is alive.");
  t.field("startupProbe", &Container::startup_probe, "When it has started.");
  t.field("securityContext", &Container::security_context, "Privileges.");
  t.field("imagePullPolicy", &Container::image_pull_policy, "When the image is pulled.");
  t.keep_unknown(&Container::unknown);
}

void Toleration::describe(Type<Toleration>& t) {
  t.field("key", &Toleration::key, "Key of the taint.");
  t.field("operator", &Toleration::op, "Exists or Equal.");
  t.field("value", &Toleration::value, "Value of the taint.");
  t.field("effect", &Toleration::effect, "Effect of the taint.");
  t.field("tolerationSeconds", &Toleration::toleration_seconds, "How long.");
  t.keep_unknown(&Toleration::unknown);
}

void PodSpec::describe(Type<PodSpec>& t) {
  t.field("nodeName", &PodSpec::node_name, "The node the pod runs on.");
  t.field("hostNetwork", &PodSpec::host_network, "Uses the network of the node.");
  t.field("initContainers", &PodSpec::init_containers, "Run before the others, one by one.");
  t.field("containers", &PodSpec::containers, "The containers.").always();
  t.field("volumes", &PodSpec::volumes, "The volumes.");
  t.field("nodeSelector", &PodSpec::node_selector, "Labels of the node.");
  t.field("affinity", &PodSpec::affinity, "Where the pod wants to be.");
  t.field("tolerations", &PodSpec::tolerations, "Tolerated taints.");
  t.field("restartPolicy", &PodSpec::restart_policy, "Always, OnFailure or Never.");
  t.field("serviceAccountName", &PodSpec::service_account_name, "Who the pod is.");
  t.field("automountServiceAccountToken", &PodSpec::automount_service_account_token,
          "Whether its token is mounted.");
  t.field("terminationGracePeriodSeconds", &PodSpec::termination_grace_period_seconds,
          "Time to end by itself.");
  t.keep_unknown(&PodSpec::unknown);
}

void ContainerStatus::describe(Type<ContainerStatus>& t) {
  t.field("name", &ContainerStatus::name, "Name of the container.").required();
  t.field("ready", &ContainerStatus::ready, "Passes its readiness probe.").always();
  t.field("restartCount", &ContainerStatus::restart_count, "Restarts.").always();
  t.field("image", &ContainerStatus::image, "Its image.").always();
  t.field("imageID", &ContainerStatus::image_id, "The image that runs.").always();
  t.field("containerID", &ContainerStatus::container_id, "The container that runs.");
  t.field("state", &ContainerStatus::state, "What it does now.");
  t.field("lastState", &ContainerStatus::last_state, "How it ended last.");
  t.field("started", &ContainerStatus::started, "Passed its startup probe.");
  t.keep_unknown(&ContainerStatus::unknown);
}

void PodStatus::describe(Type<PodStatus>& t) {
  t.field("phase", &PodStatus::phase, "Where the pod is in its life.");
  t.field("conditions", &PodStatus::conditions, "Conditions.");
  t.field("hostIP", &PodStatus::host_ip, "Address of the node.");
  t.field("podIP", &PodStatus::pod_ip, "Address of the pod.");
  t.field("reason", &PodStatus::reason, "Why, as one word.");
  t.field("message", &PodStatus::message, "Why, for people.");
  t.field("startTime", &PodStatus::start_time, "When the node took it.");
  t.field("initContainerStatuses", &PodStatus::init_container_statuses, "Of the init containers.");
  t.field("containerStatuses", &PodStatus::container_statuses, "Of the containers.");
  t.keep_unknown(&PodStatus::unknown);
}

void PodTemplateSpec::describe(Type<PodTemplateSpec>& t) {
  t.field("metadata", &PodTemplateSpec::metadata, "Metadata of the pods.");
  t.field("spec", &PodTemplateSpec::spec, "Spec of the pods.").always();
  t.keep_unknown(&PodTemplateSpec::unknown);
}

void Pod::describe(Type<Pod>& t) {
  t.field("metadata", &Pod::metadata, "Metadata.");
  t.field("spec", &Pod::spec, "What shall run.");
  t.field("status", &Pod::status, "What runs.");
  t.keep_unknown(&Pod::unknown);
}

bool Pod::ready() const {
  if (metadata.deleting()) return false;
  const CoreCondition* condition = find_condition(status.conditions, "Ready");
  return condition != nullptr && condition->status == "True";
}

const meta::Resource& Pod::resource() {
  static const meta::Resource resource{"", "v1", "Pod", "pods", true};
  return resource;
}

Result<Pod> Pod::from_json(const Json& object) { return read_object<Pod>(object); }
Json Pod::to_json() const { return write_object(*this); }

}  // namespace varda::api
