#include "node/internal/isolation.h"

#include <algorithm>

#include "meta/quantity.h"

namespace varda::node::internal {
namespace {

constexpr std::int64_t kCpuPeriodUs = 100'000, kCpuQuotaUsMin = 1000;
constexpr std::int64_t kSharesPerCpu = 1024, kSharesMin = 2, kSharesMax = 262'144;

std::optional<std::int64_t> millis(const Json& value) {
  return meta::quantity_millis(value.is_integer() ? std::to_string(value.as_integer())
                                                  : value.as_string());
}

std::optional<std::int64_t> integer(const Json& value) {
  return value.is_integer() ? std::optional(value.as_integer()) : std::nullopt;
}

std::optional<SeccompProfile> seccomp(const Json& profile) {
  const std::string& type = profile["type"].as_string();
  if (type == "RuntimeDefault")
    return SeccompProfile{.type = SeccompProfile::Type::kRuntimeDefault, .localhost_path = ""};
  if (type == "Unconfined")
    return SeccompProfile{.type = SeccompProfile::Type::kUnconfined, .localhost_path = ""};
  if (type != "Localhost") return std::nullopt;
  return SeccompProfile{.type = SeccompProfile::Type::kLocalhost,
                        .localhost_path = profile["localhostProfile"].as_string()};
}

std::vector<std::string> strings(const Json& list) {
  std::vector<std::string> out;
  for (const Json& item : list.as_array()) out.push_back(item.as_string());
  return out;
}

}  // namespace

PodConfig pod_config(const PodRecord& record, const os::Path& directory) {
  const Json& spec = record.pod["spec"];
  const Json& security = spec["securityContext"];
  const PodName name = record.name();
  PodConfig pod;
  pod.ns = name.ns;
  pod.name = name.name;
  pod.uid = name.uid;
  pod.directory = directory;
  pod.host_network = record.host_network();
  pod.host_pid = spec["hostPID"].as_bool();
  pod.host_ipc = spec["hostIPC"].as_bool();
  pod.shared_processes = spec["shareProcessNamespace"].as_bool();
  if (!pod.host_network) {
    pod.hostname = spec["hostname"].string_or(name.name).substr(0, 63);
    while (pod.hostname.ends_with('-') || pod.hostname.ends_with('.')) pod.hostname.pop_back();
  }
  for (const char* kind : {"initContainers", "containers"}) {
    for (const Json& container : spec[kind].as_array()) {
      pod.privileged = pod.privileged || container.at("securityContext/privileged").as_bool();
      for (const Json& port : container["ports"].as_array()) {
        if (pod.host_network || port["hostPort"].as_integer() == 0) continue;
        pod.ports.push_back({.container = static_cast<int>(port["containerPort"].as_integer()),
                             .host = static_cast<int>(port["hostPort"].as_integer()),
                             .protocol = port["protocol"].string_or("TCP"),
                             .address = port["hostIP"].as_string()});
      }
    }
  }
  pod.user = integer(security["runAsUser"]);
  pod.group = integer(security["runAsGroup"]);
  pod.volume_group = integer(security["fsGroup"]);
  if (pod.volume_group) pod.groups.push_back(*pod.volume_group);
  for (const Json& group : security["supplementalGroups"].as_array())
    pod.groups.push_back(group.as_integer());
  for (const Json& sysctl : security["sysctls"].as_array())
    pod.sysctls[sysctl["name"].as_string()] = sysctl["value"].as_string();
  pod.seccomp = seccomp(security["seccompProfile"]);
  return pod;
}

Resources container_resources(const Json& container) {
  const auto of = [&](const char* kind, const char* resource) {
    return millis(container.at("resources")[kind][resource]);
  };
  Resources out;
  const std::optional<std::int64_t> cpu_limit = of("limits", "cpu");
  const std::int64_t cpu = of("requests", "cpu").value_or(cpu_limit.value_or(0));
  out.cpu_shares =
      std::clamp(cpu > kSharesMax * 1000 / kSharesPerCpu ? kSharesMax : cpu * kSharesPerCpu / 1000,
                 kSharesMin, kSharesMax);
  if (cpu_limit && *cpu_limit > 0 && *cpu_limit < 1'000'000'000) {
    out.cpu_period_us = kCpuPeriodUs;
    out.cpu_quota_us = std::max(*cpu_limit * kCpuPeriodUs / 1000, kCpuQuotaUsMin);
  }
  if (const auto memory = of("limits", "memory")) out.memory_bytes_max = *memory / 1000;
  return out;
}

Security container_security(const Json& pod_spec, const Json& container) {
  const Json& own = container["securityContext"];
  const Json& pod = pod_spec["securityContext"];
  const auto either = [&](const char* field) -> const Json& {
    return own.contains(field) ? own[field] : pod[field];
  };
  Security out;
  out.user = integer(either("runAsUser"));
  out.group = integer(either("runAsGroup"));
  out.must_not_be_root = either("runAsNonRoot").as_bool();
  out.read_only_root = own["readOnlyRootFilesystem"].as_bool();
  out.privileged = own["privileged"].as_bool();
  out.unmasked_proc = own["procMount"].as_string() == "Unmasked";
  out.no_new_privileges =
      own.contains("allowPrivilegeEscalation") && !own["allowPrivilegeEscalation"].as_bool();
  out.added_capabilities = strings(own.at("capabilities/add"));
  out.dropped_capabilities = strings(own.at("capabilities/drop"));
  out.seccomp = seccomp(either("seccompProfile"));
  return out;
}

}  // namespace varda::node::internal
