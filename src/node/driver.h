// Driver: how containers of one kind are started, ended and found again. It keeps no state that a restart would lose.
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

/// Which container: enough to find it again after the runner was killed.
struct ContainerName {
  std::string pod_uid;
  std::string container;
  int attempt = 0;  // 0 for the first start, +1 for every restart
  friend auto operator<=>(const ContainerName&, const ContainerName&) = default;
};

struct HostPort {
  int container = 0, host = 0;
  std::string protocol = "TCP";
  std::string address;  // of the node; empty: every one
};

struct SeccompProfile {
  enum class Type { kRuntimeDefault = 0, kUnconfined = 1, kLocalhost = 2 };
  Type type = Type::kRuntimeDefault;
  std::string localhost_path;
};

/// The containers of one pod share this. The namespaces are for drivers whose containers have their own.
struct PodConfig {
  std::string ns, name, uid;
  os::Path directory;
  std::string hostname;
  bool host_network = false, host_pid = false, host_ipc = false;
  bool shared_processes = false;  // they see each other's
  std::vector<HostPort> ports;
  bool privileged = false;  // one of its containers is
  std::optional<std::int64_t> user, group;
  std::vector<std::int64_t> groups;  // further ones of every process, `volume_group` among them
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
  std::map<std::string, std::string> environment;  // what the spec says; the driver adds what every container has
  std::string working_directory;                   // as the container sees it; empty: the image's, or the pod's directory
  os::Path pod_directory;
  os::Path log;  // stdout and stderr are appended
  std::string pod_ip;
  std::vector<os::Mount> mounts;
  PodConfig pod;
  Resources resources;  // the process driver ignores them
  Security security;
};

/// A container that the driver found by itself.
struct FoundContainer {
  ContainerName name;
  std::string id;
  bool ended = false;  // it has run, and poll() tells how it ended
};

/// How a container ended. `known` is false if nobody was there to see it.
struct ContainerExit {
  int code = 0;
  int signal = 0;
  bool known = true;
  std::string reason;  // "OOMKilled"; empty: what the code says
};

enum class StopSignal { kTerminate, kKill };

/// What stands in the log files: the bytes as written, or lines of the container runtime interface,
/// "2026-01-31T12:00:00.123456789Z stdout F text", where P instead of F says that the line goes on.
enum class LogFormat { kRaw, kCri };

/// Thread-safe. Identifiers are opaque texts: "4711-889120" of the process driver.
class Driver {
 public:
  virtual ~Driver() = default;
  /// "process": what stands before "://" in containerID.
  virtual std::string scheme() const = 0;
  virtual LogFormat log_format() const = 0;
  /// Its containers have a root of their own, so that a file can be mounted for the message they leave.
  virtual bool private_root() const = 0;
  /// kUnsupported: this driver cannot run that image. kNotFound: it could, if the image were here. The message says what to do.
  /// kUnavailable: it cannot be asked now.
  virtual Status check_image(const std::string& image) const = 0;
  /// Makes what the pod's containers share, unless it is there. Called before each of their starts. Returns the pod's own address;
  /// "": the driver gives none. kUnavailable: not yet, try again.
  virtual Result<std::string> prepare_pod(const PodConfig& pod) = 0;
  /// Ends and removes whatever is left of a pod, containers included. An error: something is still there.
  virtual Status remove_pod(const std::string& uid) = 0;
  /// The uids of all pods of which anything is left, from this runner's former lives too.
  virtual Result<std::vector<std::string>> pods() = 0;
  /// Returns the identifier. kUnsupported: its mounts are not possible here. kForbidden: the driver cannot keep what `security`
  /// promises. Anything else: this start failed.
  virtual Result<std::string> start(const ContainerConfig& config) = 0;
  /// How it ended, or nothing while it runs. What it left behind (children) is ended before that is told.
  virtual std::optional<ContainerExit> poll(const std::string& id, const ContainerName& name) = 0;
  /// To the container and all its children. Fine if it has ended.
  virtual void stop(const std::string& id, const ContainerName& name, StopSignal signal) = 0;
  /// Runs a command beside a running container, with its environment and mounts, to the end; the exit code.
  virtual Result<int> exec(const Context& ctx, const ContainerConfig& config, const std::vector<std::string>& command) = 0;
  /// All running containers this driver has started for this runner, also in a former life; where it remembers them, those that
  /// have ended too.
  virtual Result<std::vector<FoundContainer>> find() = 0;
  /// `wake` is called, from any thread, when poll() may have something new. Set once, before start(); cheap.
  /// An empty function ends that: no call is under way once this returns. Who set it does so before it is destroyed.
  virtual void on_exit(std::function<void()> wake) = 0;
};

}  // namespace varda::node
