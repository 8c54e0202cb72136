// Pod and PodTemplateSpec (core/v1): the fields that our controllers and runners use. All other
// fields stay unchanged.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/core/condition.h"
#include "meta/object.h"

namespace varda::api {

template <typename T>
class Type;

struct EnvVar {
  std::string name{};
  std::string value{};
  Json value_from{};  // {fieldRef: {fieldPath}} ...; null: value counts
  Json unknown{};
  static void describe(Type<EnvVar>& t);
};

struct ContainerPort {
  std::string name{};
  std::int64_t container_port = 0;
  std::int64_t host_port = 0;
  std::string protocol{};  // "" means TCP
  Json unknown{};
  static void describe(Type<ContainerPort>& t);
};

struct VolumeMount {
  std::string name{};
  std::string mount_path{};
  bool read_only = false;
  std::string sub_path{};
  Json unknown{};
  static void describe(Type<VolumeMount>& t);
};

struct Container {
  std::string name;
  std::string image;
  std::vector<std::string> command, args;
  std::string working_dir;
  std::vector<EnvVar> env;
  std::vector<ContainerPort> ports;
  std::vector<VolumeMount> volume_mounts;
  Json resources, readiness_probe, liveness_probe, startup_probe, security_context;
  std::string image_pull_policy;
  Json unknown;
  static void describe(Type<Container>& t);
};

struct Toleration {
  std::string key{};
  std::string op{};  // Exists, Equal; "" means Equal
  std::string value{};
  std::string effect{};  // "" means every effect
  std::optional<std::int64_t> toleration_seconds{};
  Json unknown{};
  static void describe(Type<Toleration>& t);
};

struct PodSpec {
  std::string node_name;
  bool host_network = false;
  std::vector<Container> init_containers, containers;
  std::vector<Json> volumes;  // {name, hostPath: {path, type}}, {name, emptyDir: {}} ...
  std::map<std::string, std::string> node_selector;
  Json affinity;
  std::vector<Toleration> tolerations;
  std::string restart_policy;  // "" means Always
  std::string service_account_name;
  std::optional<bool> automount_service_account_token;
  std::optional<std::int64_t> termination_grace_period_seconds;
  Json unknown;
  static void describe(Type<PodSpec>& t);
};

struct ContainerStatus {
  std::string name;
  bool ready = false;
  std::int64_t restart_count = 0;
  std::string image, image_id, container_id;
  Json state;  // {running: {startedAt}} | {waiting: {reason, message}} | {terminated: {exitCode,
               // reason, message, ...}}
  Json last_state;
  std::optional<bool> started;
  Json unknown;
  static void describe(Type<ContainerStatus>& t);
};

struct PodStatus {
  std::string phase;  // Pending, Running, Succeeded, Failed, Unknown
  std::vector<CoreCondition> conditions;
  std::string host_ip, pod_ip;
  std::string reason, message;
  std::string start_time;
  std::vector<ContainerStatus> init_container_statuses, container_statuses;
  Json unknown;
  static void describe(Type<PodStatus>& t);
};

struct PodTemplateSpec {
  meta::ObjectMeta metadata;
  PodSpec spec;
  Json unknown;
  static void describe(Type<PodTemplateSpec>& t);
};

struct Pod {
  meta::ObjectMeta metadata;
  PodSpec spec;
  PodStatus status;
  Json unknown;

  /// True if the condition Ready is True and the pod is not terminating.
  bool ready() const;
  /// True if the phase is Failed or Succeeded: the containers do not start again.
  bool ended() const { return status.phase == "Failed" || status.phase == "Succeeded"; }
  static const meta::Resource& resource();
  static Result<Pod> from_json(const Json& object);
  Json to_json() const;
  static void describe(Type<Pod>& t);
};

}  // namespace varda::api
