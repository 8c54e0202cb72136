// Driver: how containers of one kind are started, ended and found again. It keeps no state that a restart would lose.
#pragma once

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

/// A container ready to start: everything in it is resolved.
struct ContainerConfig {
  ContainerName name;
  std::string image;
  std::vector<std::string> command;  // replaces the image's; empty: the image's
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  // what the spec says; the driver adds what every container has
  std::string working_directory;                   // as the container sees it; empty: the pod's directory
  os::Path pod_directory;
  os::Path log;  // stdout and stderr are appended
  std::string pod_ip;
  std::vector<os::Mount> mounts;
};

/// A running container that the driver found by itself.
struct FoundContainer {
  ContainerName name;
  std::string id;
};

/// How a container ended. `known` is false if nobody was there to see it.
struct ContainerExit {
  int code = 0;
  int signal = 0;
  bool known = true;
};

enum class StopSignal { kTerminate, kKill };

/// Thread-safe. Identifiers are opaque texts: "4711-889120" of the process driver.
class Driver {
 public:
  virtual ~Driver() = default;
  /// "process": what stands before "://" in containerID.
  virtual std::string scheme() const = 0;
  /// kUnsupported: this driver cannot run that image; the message says what to do.
  virtual Status check_image(const std::string& image) const = 0;
  /// Returns the identifier. kUnsupported: its mounts are not possible here. Anything else: this start failed.
  virtual Result<std::string> start(const ContainerConfig& config) = 0;
  /// How it ended, or nothing while it runs. What it left behind (children) is ended before that is told.
  virtual std::optional<ContainerExit> poll(const std::string& id, const ContainerName& name) = 0;
  /// To the container and all its children. Fine if it has ended.
  virtual void stop(const std::string& id, const ContainerName& name, StopSignal signal) = 0;
  /// Runs a command beside a running container, with its environment and mounts, to the end; the exit code.
  virtual Result<int> exec(const Context& ctx, const ContainerConfig& config, const std::vector<std::string>& command) = 0;
  /// All running containers this driver has started for this runner, also in a former life.
  virtual std::vector<FoundContainer> find() = 0;
  /// `wake` is called, from any thread, when poll() may have something new. Set once, before start(); cheap.
  /// An empty function ends that: no call is under way once this returns. Who set it does so before it is destroyed.
  virtual void on_exit(std::function<void()> wake) = 0;
};

}  // namespace varda::node
