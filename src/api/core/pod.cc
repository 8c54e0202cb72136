#include "api/core/pod.h"

#include <utility>

#include "api/describe.h"
#include "meta/resources.h"

namespace varda::api {

namespace {

Schema source_text(std::string_view description) {
  Schema schema;
  schema.type = Schema::Type::kString;
  schema.description = std::string(description);
  schema.length_max = 1024;
  return schema;
}

Schema source_object(std::string_view description, std::vector<Property> properties) {
  Schema schema;
  schema.type = Schema::Type::kObject;
  schema.description = std::string(description);
  schema.preserve_unknown = true;
  schema.properties = std::move(properties);
  return schema;
}

/// A member of a Secret or ConfigMap.
Schema key_reference(std::string_view description) {
  Schema optional;
  optional.type = Schema::Type::kBoolean;
  optional.description = "Whether the object or the key may be missing.";
  return source_object(description, {{"name", source_text("Name of the object."), true},
                                     {"key", source_text("Key in the object."), true},
                                     {"optional", std::move(optional)}});
}

/// An EnvVarSource. Members of later versions of Kubernetes pass through.
Schema value_source() {
  return source_object(
      "", {{"secretKeyRef", key_reference("A key of a Secret in the same namespace.")},
           {"configMapKeyRef", key_reference("A key of a ConfigMap in the same namespace.")},
           {"fieldRef", source_object("A field of the pod: status.podIP, spec.nodeName ...",
                                      {{"fieldPath", source_text("Path of the field."), true}})},
           {"resourceFieldRef",
            source_object("Resources of the container: limits.memory ...",
                          {{"resource", source_text("Name of the resource."), true}})}});
}

}  // namespace

// EnvVar and Toleration are also members of our kinds, which take the limits into their CRDs. The
// limits are far above normal use.

void EnvVar::describe(Type<EnvVar>& t) {
  t.doc("One variable.");
  t.field("name", &EnvVar::name, "Name of the variable.")
      .required()
      .length(1, 253)
      .pattern("^[-._a-zA-Z][-._a-zA-Z0-9]*$");
  t.field("value", &EnvVar::value, "Value; $(NAME) refers to an earlier variable.")
      .length(0, 65536);
  t.field("valueFrom", &EnvVar::value_from,
          "Source of the value, instead of value: one of secretKeyRef, configMapKeyRef, fieldRef "
          "and resourceFieldRef.")
      .shaped(value_source());
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
  t.field("mountPath", &VolumeMount::mount_path, "Path of the mount in the container.").required();
  t.field("readOnly", &VolumeMount::read_only, "Mounts the volume read-only.");
  t.field("subPath", &VolumeMount::sub_path, "Path in the volume to mount.");
  t.keep_unknown(&VolumeMount::unknown);
}

void Container::describe(Type<Container>& t) {
  t.field("name", &Container::name, "Name of the container.").required();
  t.field("image", &Container::image, "Image of the container.");
  t.field("command", &Container::command, "Replaces the image's entry point.");
  t.field("args", &Container::args, "Arguments.");
  t.field("workingDir", &Container::working_dir, "Working directory.");
  t.field("env", &Container::env, "Environment.");
  t.field("ports", &Container::ports, "Ports it listens on.");
  t.field("volumeMounts", &Container::volume_mounts, "Mounted volumes.");
  t.field("resources", &Container::resources, "Requests and limits.");
  t.field("readinessProbe", &Container::readiness_probe, "Check of readiness.");
  t.field("livenessProbe", &Container::liveness_probe, "A failure restarts the container.");
  t.field("startupProbe", &Container::startup_probe,
          "Check of the start; other probes wait for it.");
  t.field("securityContext", &Container::security_context, "Privileges.");
  t.field("imagePullPolicy", &Container::image_pull_policy, "Always, IfNotPresent or Never.");
  t.keep_unknown(&Container::unknown);
}

void Toleration::describe(Type<Toleration>& t) {
  t.doc("One tolerated taint.");
  t.field("key", &Toleration::key, "Key of the taint. Empty, with Exists: every taint.")
      .length(0, 317);
  t.field("operator", &Toleration::op,
          "Exists: any value of the taint. Equal, the default: the same value.")
      .one_of({"Exists", "Equal"});
  t.field("value", &Toleration::value, "Value of the taint.").length(0, 63);
  t.field("effect", &Toleration::effect, "Effect of the taint. Default: every effect.")
      .one_of({"NoSchedule", "PreferNoSchedule", "NoExecute"});
  t.field("tolerationSeconds", &Toleration::toleration_seconds,
          "Seconds of toleration, for the effect NoExecute. Default: without end.")
      .format("int64");
  t.keep_unknown(&Toleration::unknown);
}

void PodSpec::describe(Type<PodSpec>& t) {
  t.field("nodeName", &PodSpec::node_name, "Node of the pod.");
  t.field("hostNetwork", &PodSpec::host_network, "Uses the network of the node.");
  t.field("initContainers", &PodSpec::init_containers,
          "Containers that run before the others, in order.");
  t.field("containers", &PodSpec::containers, "The containers.").always();
  t.field("volumes", &PodSpec::volumes, "The volumes.");
  t.field("nodeSelector", &PodSpec::node_selector, "Labels of the node.");
  t.field("affinity", &PodSpec::affinity, "Rules for the choice of the node.");
  t.field("tolerations", &PodSpec::tolerations, "Tolerated taints.");
  t.field("restartPolicy", &PodSpec::restart_policy, "Always, OnFailure or Never.");
  t.field("serviceAccountName", &PodSpec::service_account_name, "Service account of the pod.");
  t.field("automountServiceAccountToken", &PodSpec::automount_service_account_token,
          "Mounts the token of the service account.");
  t.field("terminationGracePeriodSeconds", &PodSpec::termination_grace_period_seconds,
          "Seconds between the termination signal and the kill.");
  t.keep_unknown(&PodSpec::unknown);
}

void ContainerStatus::describe(Type<ContainerStatus>& t) {
  t.field("name", &ContainerStatus::name, "Name of the container.").required();
  t.field("ready", &ContainerStatus::ready, "The readiness probe passes.").always();
  t.field("restartCount", &ContainerStatus::restart_count, "Restarts.").always();
  t.field("image", &ContainerStatus::image, "Image of the container.").always();
  t.field("imageID", &ContainerStatus::image_id, "ID of the running image.").always();
  t.field("containerID", &ContainerStatus::container_id, "ID of the running container.");
  t.field("state", &ContainerStatus::state, "Current state.");
  t.field("lastState", &ContainerStatus::last_state, "Previous state.");
  t.field("started", &ContainerStatus::started, "The startup probe has passed.");
  t.keep_unknown(&ContainerStatus::unknown);
}

void PodStatus::describe(Type<PodStatus>& t) {
  t.field("phase", &PodStatus::phase, "Pending, Running, Succeeded, Failed or Unknown.");
  t.field("conditions", &PodStatus::conditions, "Conditions.");
  t.field("hostIP", &PodStatus::host_ip, "Address of the node.");
  t.field("podIP", &PodStatus::pod_ip, "Address of the pod.");
  t.field("reason", &PodStatus::reason, "Machine-readable reason, one CamelCase word.");
  t.field("message", &PodStatus::message, "Human-readable explanation.");
  t.field("startTime", &PodStatus::start_time, "Time when the node accepted the pod.");
  t.field("initContainerStatuses", &PodStatus::init_container_statuses,
          "Status of the init containers.");
  t.field("containerStatuses", &PodStatus::container_statuses, "Status of the containers.");
  t.keep_unknown(&PodStatus::unknown);
}

void PodTemplateSpec::describe(Type<PodTemplateSpec>& t) {
  t.field("metadata", &PodTemplateSpec::metadata, "Metadata of the pods.");
  t.field("spec", &PodTemplateSpec::spec, "Spec of the pods.").always();
  t.keep_unknown(&PodTemplateSpec::unknown);
}

void Pod::describe(Type<Pod>& t) {
  t.field("metadata", &Pod::metadata, "Metadata.");
  t.field("spec", &Pod::spec, "Desired state.");
  t.field("status", &Pod::status, "Actual state.");
  t.keep_unknown(&Pod::unknown);
}

bool Pod::ready() const {
  if (metadata.deleting()) return false;
  const CoreCondition* condition = find_condition(status.conditions, "Ready");
  return condition != nullptr && condition->status == "True";
}

const meta::Resource& Pod::resource() { return meta::core::pods(); }

Result<Pod> Pod::from_json(const Json& object) { return read_object<Pod>(object); }
Json Pod::to_json() const { return write_object(*this); }

}  // namespace varda::api
