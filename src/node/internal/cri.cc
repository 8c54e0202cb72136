// Field numbers: k8s.io/cri-api, pkg/apis/runtime/v1/api.proto.
#include "node/internal/cri.h"

#include <algorithm>
#include <limits>

#include "codec/json.h"
#include "codec/protobuf.h"

namespace varda::node::cri {
namespace {

using codec::ProtoReader;
using codec::ProtoWriter;
using std::chrono::seconds;

constexpr auto kLimit = seconds(20);       // for read-only calls
constexpr auto kWorkLimit = seconds(120);  // CNI plug-ins and slow disks; a retry would start over

// Paths of /proc and /sys that reveal or change the machine's state. A runtime hides only the paths
// that it is given. These are a kubelet's (kubernetes, pkg/securitycontext/util.go).
constexpr const char* kMaskedPaths[] = {"/proc/acpi",
                                        "/proc/asound",
                                        "/proc/interrupts",
                                        "/proc/kcore",
                                        "/proc/keys",
                                        "/proc/latency_stats",
                                        "/proc/sched_debug",
                                        "/proc/scsi",
                                        "/proc/timer_list",
                                        "/proc/timer_stats",
                                        "/sys/devices/virtual/powercap",
                                        "/sys/firmware"};
constexpr const char* kReadOnlyPaths[] = {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
                                          "/proc/sysrq-trigger"};

// NamespaceMode
constexpr std::int64_t kPod = 0, kContainer = 1, kNode = 2;

void labels(ProtoWriter& out, std::uint32_t field, const Labels& labels) {
  for (const auto& [key, value] : labels) out.entry(field, key, value);
}

// NamespaceOption
void namespaces(ProtoWriter& out, const PodConfig& pod) {
  out.number(1, pod.host_network ? kNode : kPod);
  out.number(2, pod.host_pid ? kNode : pod.shared_processes ? kPod : kContainer);
  out.number(3, pod.host_ipc ? kNode : kPod);
}

// Int64Value: written also if 0.
void optional_number(ProtoWriter& out, std::uint32_t field,
                     const std::optional<std::int64_t>& value) {
  if (value) out.message(field, [&](ProtoWriter& inner) { inner.number(1, *value); });
}

// SecurityProfile
void seccomp(ProtoWriter& out, std::uint32_t field, const std::optional<SeccompProfile>& profile) {
  if (!profile) return;
  out.message(field, [&](ProtoWriter& inner) {
    inner.number(1, static_cast<int>(profile->type));
    inner.text(2, profile->localhost_path);
  });
}

// repeated int64: packed, as in proto3.
void numbers(ProtoWriter& out, std::uint32_t field, const std::vector<std::int64_t>& values) {
  std::string packed;
  for (const std::int64_t value : values) {
    auto remaining = static_cast<std::uint64_t>(value);
    for (; remaining >= 0x80; remaining >>= 7) packed += static_cast<char>(remaining | 0x80);
    packed += static_cast<char>(remaining);
  }
  out.text(field, packed);
}

// PodSandboxConfig
void sandbox_config(ProtoWriter& out, const SandboxConfig& config) {
  const PodConfig& pod = config.pod;
  out.message(1, [&](ProtoWriter& m) {
    m.text(1, pod.name).text(2, pod.uid).text(3, pod.ns).number(4, config.attempt);
  });
  out.text(2, pod.hostname);
  out.text(3, pod.directory.string());
  for (const HostPort& port : pod.ports) {
    out.message(5, [&](ProtoWriter& m) {
      m.number(1, port.protocol == "UDP" ? 1 : port.protocol == "SCTP" ? 2 : 0);
      m.number(2, port.container).number(3, port.host).text(4, port.address);
    });
  }
  labels(out, 6, config.labels);
  out.message(8, [&](ProtoWriter& linux_config) {
    linux_config.text(1, config.cgroup_parent);
    linux_config.message(2, [&](ProtoWriter& security) {
      security.message(1, [&](ProtoWriter& options) { namespaces(options, pod); });
      optional_number(security, 3, pod.user);
      optional_number(security, 8, pod.user ? pod.group : std::nullopt);
      numbers(security, 5, pod.groups);
      security.number(6, pod.privileged ? 1 : 0);
      seccomp(security, 9, pod.seccomp);
    });
    labels(linux_config, 3, pod.sysctls);
  });
}

// LinuxContainerConfig
void linux_config(ProtoWriter& out, const ContainerSpec& spec) {
  const ContainerConfig& config = spec.config;
  out.message(1, [&](ProtoWriter& m) {
    const Resources& r = config.resources;
    m.number(1, r.cpu_period_us)
        .number(2, r.cpu_quota_us)
        .number(3, r.cpu_shares)
        .number(4, r.memory_bytes_max);
  });
  out.message(2, [&](ProtoWriter& m) {
    const Security& s = config.security;
    if (!s.added_capabilities.empty() || !s.dropped_capabilities.empty()) {
      m.message(1, [&](ProtoWriter& capability) {
        for (const std::string& name : s.added_capabilities) capability.element(1, name);
        for (const std::string& name : s.dropped_capabilities) capability.element(2, name);
      });
    }
    m.number(2, s.privileged ? 1 : 0);
    m.message(3, [&](ProtoWriter& options) { namespaces(options, config.pod); });
    optional_number(m, 5, s.user);
    m.text(6, spec.user_name);
    optional_number(m, 12, s.group);
    m.number(7, s.read_only_root ? 1 : 0);
    numbers(m, 8, config.pod.groups);
    m.number(11, s.no_new_privileges ? 1 : 0);
    if (!s.privileged && !s.unmasked_proc) {
      for (const char* path : kMaskedPaths) m.element(13, path);
      for (const char* path : kReadOnlyPaths) m.element(14, path);
    }
    seccomp(m, 15, s.seccomp);
  });
}

// ContainerConfig
void container_config(ProtoWriter& out, const ContainerSpec& spec) {
  const ContainerConfig& config = spec.config;
  out.message(
      1, [&](ProtoWriter& m) { m.text(1, config.name.container).number(2, config.name.attempt); });
  out.message(2, [&](ProtoWriter& m) { m.text(1, spec.image_id).text(18, config.image); });
  for (const std::string& argument : config.command) out.element(3, argument);
  for (const std::string& argument : config.arguments) out.element(4, argument);
  out.text(5, config.working_directory);
  for (const auto& [name, value] : config.environment) out.entry(6, name, value);
  for (const os::Mount& mount : config.mounts) {
    out.message(7, [&](ProtoWriter& m) {
      m.text(1, mount.target).text(2, mount.source.string()).number(3, mount.read_only ? 1 : 0);
    });
  }
  labels(out, 9, spec.labels);
  out.text(11, spec.log_path);
  out.message(15, [&](ProtoWriter& m) { linux_config(m, spec); });
}

std::string id_request(const std::string& id) {
  ProtoWriter out;
  out.text(1, id);
  return std::move(out).bytes();
}

// The first field, an id in most answers.
Result<std::string> first_text(std::string_view bytes) {
  std::string out;
  ProtoReader in(bytes);
  while (in.next()) {
    if (in.field() == 1) out = in.text();
  }
  TRY_VOID(in.status());
  return out;
}

// ContainerMetadata and PodSandboxMetadata: the field of `attempt`.
int attempt_of(std::string_view metadata, std::uint32_t field) {
  int attempt = 0;
  ProtoReader in(metadata);
  while (in.next()) {
    if (in.field() == field) attempt = static_cast<int>(in.number());
  }
  return attempt;
}

ContainerState state_of(std::int64_t number) {
  return number >= 0 && number <= 2 ? static_cast<ContainerState>(number)
                                    : ContainerState::kUnknown;
}

Container read_container(std::string_view bytes) {
  Container out;
  out.state = ContainerState::kCreated;  // 0 is not encoded
  ProtoReader in(bytes);
  while (in.next()) {
    switch (in.field()) {
      case 1:
        out.id = in.text();
        break;
      case 2:
        out.sandbox_id = in.text();
        break;
      case 3:
        out.attempt = attempt_of(in.bytes(), 2);
        break;
      case 6:
        out.state = state_of(in.number());
        break;
      case 8:
        out.labels.insert(in.entry());
        break;
      default:
        break;
    }
  }
  return out;
}

Sandbox read_sandbox(std::string_view bytes) {
  Sandbox out;
  out.ready = true;  // SANDBOX_READY is 0 and not encoded
  ProtoReader in(bytes);
  while (in.next()) {
    switch (in.field()) {
      case 1:
        out.id = in.text();
        break;
      case 2:
        out.attempt = attempt_of(in.bytes(), 4);
        break;
      case 3:
        out.ready = in.number() == 0;
        break;
      case 5:
        out.labels.insert(in.entry());
        break;
      default:
        break;
    }
  }
  return out;
}

/// An object that is gone counts as stopped.
Status ok_if_not_found(const Result<std::string>& answer) {
  if (answer.ok() || answer.error().code() == Code::kNotFound) return {};
  return answer.error();
}

// A filter in the first field of the request, with a label_selector.
std::string filtered(std::uint32_t field, const Labels& with) {
  ProtoWriter out;
  out.message(1, [&](ProtoWriter& filter) { labels(filter, field, with); });
  return std::move(out).bytes();
}

}  // namespace

Result<std::string> Runtime::call(const Context& ctx, Duration limit, const char* method,
                                  const std::string& request) {
  const std::string service = std::string(method) == "ImageStatus" ? "/runtime.v1.ImageService/"
                                                                   : "/runtime.v1.RuntimeService/";
  const Result<std::string> answer =
      grpc_.call(ctx.with_timeout(limit), service + method, request).context(method);
  // containerd answers this, with various codes, until it has loaded its state.
  if (!answer.ok() &&
      answer.error().message().find("server is not initialized yet") != std::string::npos)
    return Error(Code::kUnavailable, answer.error().message());
  return answer;
}

Result<std::string> Runtime::version(const Context& ctx) {
  TRY(const std::string answer, call(ctx, kLimit, "Version", {}));
  std::string name, version;
  ProtoReader in(answer);
  while (in.next()) {
    if (in.field() == 2) name = in.text();
    if (in.field() == 3) version = in.text();
  }
  TRY_VOID(in.status());
  return name + " " + version;
}

Result<std::vector<Condition>> Runtime::status(const Context& ctx) {
  TRY(const std::string answer, call(ctx, kLimit, "Status", {}));
  std::vector<Condition> out;
  ProtoReader in(answer);
  while (in.next()) {
    if (in.field() != 1) continue;
    ProtoReader conditions(in.bytes());
    while (conditions.next()) {
      if (conditions.field() != 1) continue;
      Condition& condition = out.emplace_back();
      ProtoReader one(conditions.bytes());
      while (one.next()) {
        if (one.field() == 1) condition.type = one.text();
        if (one.field() == 2) condition.holds = one.flag();
        if (one.field() == 4) condition.message = one.text();
      }
    }
  }
  TRY_VOID(in.status());
  return out;
}

namespace {

// LinuxRuntimeConfiguration
CgroupDriver read_cgroup_driver(std::string_view runtime_config) {
  CgroupDriver out = CgroupDriver::kUnknown;
  ProtoReader in(runtime_config);
  while (in.next()) {
    if (in.field() != 1) continue;
    out = CgroupDriver::kSystemd;  // SYSTEMD is 0 and not encoded
    ProtoReader linux_config(in.bytes());
    while (linux_config.next()) {
      if (linux_config.field() == 1 && linux_config.number() == 1) out = CgroupDriver::kCgroupfs;
    }
  }
  return out;
}

// The configuration of containerd's plug-in cri, from the verbose status.
CgroupDriver configured_cgroup_driver(std::string_view text) {
  const Result<codec::Json> config = codec::parse_json(text);
  if (!config.ok() || !config->is_object()) return CgroupDriver::kUnknown;
  const codec::Json& containerd = (*config)["containerd"];
  const codec::Json& runtime =
      containerd["runtimes"][containerd["defaultRuntimeName"].string_or("runc")];
  const bool systemd =
      (*config)["systemdCgroup"].as_bool() || runtime["options"]["SystemdCgroup"].as_bool();
  return systemd ? CgroupDriver::kSystemd : CgroupDriver::kCgroupfs;
}

}  // namespace

Result<CgroupDriver> Runtime::cgroup_driver(const Context& ctx) {
  const Result<std::string> reported =
      call(ctx, kLimit, "RuntimeConfig", {});  // containerd 2.0 and later
  if (reported.ok()) {
    if (const CgroupDriver driver = read_cgroup_driver(*reported); driver != CgroupDriver::kUnknown)
      return driver;
  } else if (reported.error().code() != Code::kUnsupported) {
    return reported.error();
  }
  TRY(const std::string answer,
      call(ctx, kLimit, "Status", ProtoWriter().number(1, 1).bytes()));  // verbose
  CgroupDriver driver = CgroupDriver::kUnknown;
  ProtoReader in(answer);
  while (in.next()) {
    if (in.field() != 2) continue;
    if (const auto [key, value] = in.entry(); key == "config")
      driver = configured_cgroup_driver(value);
  }
  TRY_VOID(in.status());
  return driver;
}

Result<std::string> Runtime::run_sandbox(const Context& ctx, const SandboxConfig& config) {
  ProtoWriter out;
  out.message(1, [&](ProtoWriter& m) { sandbox_config(m, config); });
  TRY(const std::string answer, call(ctx, kWorkLimit, "RunPodSandbox", out.bytes()));
  return first_text(answer);
}

Status Runtime::stop_sandbox(const Context& ctx, const std::string& id) {
  return ok_if_not_found(call(ctx, kWorkLimit, "StopPodSandbox", id_request(id)));
}

Status Runtime::remove_sandbox(const Context& ctx, const std::string& id) {
  return ok_if_not_found(call(ctx, kWorkLimit, "RemovePodSandbox", id_request(id)));
}

Result<std::string> Runtime::sandbox_address(const Context& ctx, const std::string& id) {
  TRY(const std::string answer, call(ctx, kLimit, "PodSandboxStatus", id_request(id)));
  std::string address;
  ProtoReader in(answer);
  while (in.next()) {
    if (in.field() != 1) continue;
    ProtoReader status(in.bytes());
    while (status.next()) {
      if (status.field() == 5) {
        TRY(address, first_text(status.bytes()));
      }
    }
  }
  TRY_VOID(in.status());
  return address;
}

Result<std::vector<Sandbox>> Runtime::sandboxes(const Context& ctx, const Labels& with) {
  TRY(const std::string answer, call(ctx, kLimit, "ListPodSandbox", filtered(3, with)));
  std::vector<Sandbox> out;
  ProtoReader in(answer);
  while (in.next()) {
    if (in.field() == 1) out.push_back(read_sandbox(in.bytes()));
  }
  TRY_VOID(in.status());
  return out;
}

Result<std::string> Runtime::create_container(const Context& ctx, const std::string& sandbox,
                                              const ContainerSpec& spec,
                                              const SandboxConfig& sandbox_of) {
  ProtoWriter out;
  out.text(1, sandbox);
  out.message(2, [&](ProtoWriter& m) { container_config(m, spec); });
  out.message(3, [&](ProtoWriter& m) { sandbox_config(m, sandbox_of); });
  TRY(const std::string answer, call(ctx, kWorkLimit, "CreateContainer", out.bytes()));
  return first_text(answer);
}

Status Runtime::start_container(const Context& ctx, const std::string& id) {
  TRY([[maybe_unused]] const std::string answer,
      call(ctx, kWorkLimit, "StartContainer", id_request(id)));
  return {};
}

Status Runtime::stop_container(const Context& ctx, const std::string& id, seconds grace) {
  ProtoWriter out;
  out.text(1, id).number(2, grace.count());
  return ok_if_not_found(call(ctx, grace + kLimit, "StopContainer", out.bytes()));
}

Status Runtime::remove_container(const Context& ctx, const std::string& id) {
  return ok_if_not_found(call(ctx, kWorkLimit, "RemoveContainer", id_request(id)));
}

Result<std::vector<Container>> Runtime::containers(const Context& ctx, const Labels& with) {
  TRY(const std::string answer, call(ctx, kLimit, "ListContainers", filtered(4, with)));
  std::vector<Container> out;
  ProtoReader in(answer);
  while (in.next()) {
    if (in.field() == 1) out.push_back(read_container(in.bytes()));
  }
  TRY_VOID(in.status());
  return out;
}

Result<ContainerStatus> Runtime::container_status(const Context& ctx, const std::string& id) {
  TRY(const std::string answer, call(ctx, kLimit, "ContainerStatus", id_request(id)));
  ContainerStatus out;
  out.state = ContainerState::kCreated;
  ProtoReader in(answer);
  while (in.next()) {
    if (in.field() != 1) continue;
    ProtoReader status(in.bytes());
    while (status.next()) {
      switch (status.field()) {
        case 3:
          out.state = state_of(status.number());
          break;
        case 5:  // started_at
          out.ever_ran = status.number() != 0;
          break;
        case 7:
          out.exit_code = static_cast<int>(status.number());
          break;
        case 10:
          out.reason = status.text();
          break;
        case 11:
          out.message = status.text();
          break;
        default:
          break;
      }
    }
  }
  TRY_VOID(in.status());
  return out;
}

Result<int> Runtime::exec(const Context& ctx, const std::string& id,
                          const std::vector<std::string>& command) {
  ProtoWriter out;
  out.text(1, id);
  for (const std::string& argument : command) out.element(2, argument);
  // Cancelling the call ends the command. If that does not reach the runtime, this timeout does.
  if (ctx.deadline()) {
    const auto left = std::chrono::ceil<seconds>(*ctx.deadline() - system_clock().now());
    out.number(3, std::max<std::int64_t>(1, left.count()));
  }
  TRY(const std::string answer, call(ctx, std::chrono::hours(1), "ExecSync", out.bytes()));
  int code = 0;
  ProtoReader in(answer);
  while (in.next()) {
    if (in.field() == 3) code = static_cast<int>(in.number());
  }
  TRY_VOID(in.status());
  return code;
}

Result<std::optional<Image>> Runtime::image(const Context& ctx, const std::string& reference) {
  ProtoWriter out;
  out.message(1, [&](ProtoWriter& m) { m.text(1, reference); });
  TRY(const std::string answer, call(ctx, kLimit, "ImageStatus", out.bytes()));
  std::optional<Image> found;
  ProtoReader in(answer);
  while (in.next()) {
    if (in.field() != 1) continue;
    Image& image = found.emplace();
    ProtoReader one(in.bytes());
    while (one.next()) {
      if (one.field() == 1) image.id = one.text();
      if (one.field() == 6) image.user = one.text();
      if (one.field() != 5) continue;
      image.uid = 0;
      ProtoReader uid(one.bytes());
      while (uid.next()) {
        if (uid.field() == 1) image.uid = uid.number();
      }
    }
  }
  TRY_VOID(in.status());
  return found;
}

}  // namespace varda::node::cri
