// Driver: starts, stops and finds containers of one kind. It keeps no state that a restart would
// lose.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "os/process.h"

namespace varda::node {

/// Identifies a container run, even after the runner was killed.
struct ContainerName {
  std::string pod_uid;
  std::string container;
  int attempt = 0;  // 0 for the first start, +1 for every restart
  friend auto operator<=>(const ContainerName&, const ContainerName&) = default;
};

struct HostPort {
  int container = 0, host = 0;
  std::string protocol = "TCP";
  std::string address;  // of the node; empty: all addresses
};

struct SeccompProfile {
  enum class Type { kRuntimeDefault = 0, kUnconfined = 1, kLocalhost = 2 };
  Type type = Type::kRuntimeDefault;
  std::string localhost_path;
};

/// Settings that the containers of one pod share. The namespaces are for drivers with isolated
/// containers.
struct PodConfig {
  std::string ns, name, uid;
  os::Path directory;
  std::string hostname;
  bool host_network = false, host_pid = false, host_ipc = false;
  bool shared_processes = false;  // containers share one PID namespace
  std::vector<HostPort> ports;
  bool privileged = false;  // at least one container is privileged
  std::optional<std::int64_t> user, group;
  std::vector<std::int64_t>
      groups;  // supplementary groups of every process, including `volume_group`
  std::optional<std::int64_t> volume_group;
  std::map<std::string, std::string> sysctls;
  std::optional<SeccompProfile> seccomp;
};

/// 0: no limit.
struct Resources {
  std::int64_t cpu_shares = 0, cpu_quota_us = 0, cpu_period_us = 0;
  std::int64_t memory_bytes_max = 0;
};

struct Security {
  std::optional<std::int64_t> user, group;  // nothing: the image's
  bool must_not_be_root = false;
  bool unmasked_proc = false;  // procMount: Unmasked
  bool read_only_root = false, privileged = false, no_new_privileges = false;
  std::vector<std::string> added_capabilities, dropped_capabilities;
  std::optional<SeccompProfile> seccomp;
};

/// A container ready to start: everything in it is resolved.
struct ContainerConfig {
  ContainerName name;
  std::string image;
  std::vector<std::string> command;  // replaces the image's; empty: the image's
  std::vector<std::string> arguments;
  std::map<std::string, std::string>
      environment;                // from the spec; the driver adds its standard variables
  std::string working_directory;  // path inside the container; empty: the image's,
                                  // or the pod's directory
  os::Path pod_directory;
  os::Path log;  // stdout and stderr are appended
  std::string pod_ip;
  std::vector<os::Mount> mounts;
  PodConfig pod;
  Resources resources;  // the process driver ignores them
  Security security;
};

/// A container that the driver found without a record.
struct FoundContainer {
  ContainerName name;
  std::string id;
  bool ended = false;  // it has run; poll() returns its exit
};

/// The exit of a container. `known` is false if no process observed it.
struct ContainerExit {
  int code = 0;
  int signal = 0;
  bool known = true;
  std::string reason;  // "OOMKilled"; empty: derived from the code
};

enum class StopSignal { kTerminate, kKill };

/// Format of the log files: raw bytes, or lines of the container runtime interface,
/// "2026-01-31T12:00:00.123456789Z stdout F text". P instead of F marks a line that continues.
enum class LogFormat { kRaw, kCri };

/// Thread-safe. Identifiers are opaque strings, such as "4711-889120" of the process driver.
class Driver {
 public:
  virtual ~Driver() = default;
  /// "process": the prefix before "://" in containerID.
  virtual std::string scheme() const = 0;
  virtual LogFormat log_format() const = 0;
  /// Whether containers have a private root, so that a termination message file can be mounted.
  virtual bool private_root() const = 0;
  /// kUnsupported: this driver cannot run that image. kNotFound: the image is not on this machine;
  /// the message gives the remedy. kUnavailable: the check failed, retry.
  virtual Status check_image(const std::string& image) const = 0;
  /// Creates the resources that the pod's containers share, if missing. Called before each
  /// container start. Returns the pod's address; "": the driver assigns none. kUnavailable: not
  /// ready yet, retry.
  virtual Result<std::string> prepare_pod(const PodConfig& pod) = 0;
  /// Stops and removes everything of a pod, containers included. An error: something remains.
  virtual Status remove_pod(const std::string& uid) = 0;
  /// The uids of all pods with remains, including those of previous runs of this runner.
  virtual Result<std::vector<std::string>> pods() = 0;
  /// Returns the identifier. kUnsupported: mounts are not possible here. kForbidden: the driver
  /// cannot enforce `security`. Other errors: this start failed.
  virtual Result<std::string> start(const ContainerConfig& config) = 0;
  /// The exit, or nothing while the container runs. Remaining children are killed before an exit is
  /// returned.
  virtual std::optional<ContainerExit> poll(const std::string& id, const ContainerName& name) = 0;
  /// Signals the container and all its children. No effect after the exit.
  virtual void stop(const std::string& id, const ContainerName& name, StopSignal signal) = 0;
  /// Runs a command beside a running container, with its environment and mounts. Returns the exit
  /// code.
  virtual Result<int> exec(const Context& ctx, const ContainerConfig& config,
                           const std::vector<std::string>& command) = 0;
  /// All running containers that this driver started for this runner, including previous runs.
  /// Drivers with a memory also return exited containers.
  virtual Result<std::vector<FoundContainer>> find() = 0;
  /// `wake` is called, from any thread, when poll() may have something new. Set it once, before
  /// start(); it must be cheap. An empty function ends the calls: none is running once on_exit()
  /// returns. The caller must do so before `wake` becomes invalid.
  virtual void on_exit(std::function<void()> wake) = 0;
};

}  // namespace varda::node
