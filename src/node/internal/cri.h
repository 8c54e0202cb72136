// The part of the container runtime interface (CRI, runtime.v1) that a pod runner needs, as plain
// values. cri.cc has the messages.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "net/grpc_client.h"
#include "node/driver.h"

namespace varda::node::cri {

using Labels = std::map<std::string, std::string>;

struct Condition {
  std::string type;  // "RuntimeReady", "NetworkReady"
  bool holds = false;
  std::string message;
};

/// A pod's sandbox: its namespaces, held by an idle process.
struct SandboxConfig {
  PodConfig pod;
  int attempt = 0;
  Labels labels;
  std::string cgroup_parent;  // empty: the runtime's default
};
struct Sandbox {
  std::string id;
  int attempt = 0;
  bool ready = false;
  Labels labels;
};

struct ContainerSpec {
  ContainerConfig config;
  std::string image_id;
  std::string user_name;  // instead of a numeric user
  std::string log_path;   // below the sandbox's log directory
  Labels labels;
};
enum class ContainerState { kCreated = 0, kRunning = 1, kExited = 2, kUnknown = 3 };
struct Container {
  std::string id, sandbox_id;
  int attempt = 0;
  ContainerState state = ContainerState::kUnknown;
  Labels labels;
};
struct ContainerStatus {
  ContainerState state = ContainerState::kUnknown;
  bool ever_ran = false;
  int exit_code = 0;
  std::string reason, message;
};

struct Image {
  std::string id;
  std::optional<std::int64_t> uid;  // user of its processes
  std::string user;                 // the same by name, if it has one
};

enum class CgroupDriver { kUnknown, kSystemd, kCgroupfs };

/// Blocking calls of the two services. Thread-safe. Every call has a time limit, unless the
/// context's deadline is earlier. kUnavailable: no answer, or the runtime is still starting.
class Runtime {
 public:
  explicit Runtime(net::GrpcClient& grpc) : grpc_(grpc) {}

  /// "containerd 1.6.20"
  Result<std::string> version(const Context& ctx);
  Result<std::vector<Condition>> status(const Context& ctx);
  /// The naming scheme of cgroups. kUnknown: the runtime does not report it.
  Result<CgroupDriver> cgroup_driver(const Context& ctx);

  Result<std::string> run_sandbox(const Context& ctx, const SandboxConfig& config);
  /// Stops every container in it, too. Succeeds if it has stopped or is gone.
  Status stop_sandbox(const Context& ctx, const std::string& id);
  /// Removes its containers, too. Succeeds if it is gone.
  Status remove_sandbox(const Context& ctx, const std::string& id);
  /// "" without an address, as with the host's network.
  Result<std::string> sandbox_address(const Context& ctx, const std::string& id);
  Result<std::vector<Sandbox>> sandboxes(const Context& ctx, const Labels& with);

  Result<std::string> create_container(const Context& ctx, const std::string& sandbox,
                                       const ContainerSpec& spec,
                                       const SandboxConfig& sandbox_config);
  Status start_container(const Context& ctx, const std::string& id);
  /// Sends SIGTERM, and SIGKILL after `grace`; returns after the exit. Succeeds if it is gone.
  /// After a cancelled call no SIGKILL follows.
  Status stop_container(const Context& ctx, const std::string& id, std::chrono::seconds grace);
  /// Stops it, too. Succeeds if it is gone.
  Status remove_container(const Context& ctx, const std::string& id);
  Result<std::vector<Container>> containers(const Context& ctx, const Labels& with);
  Result<ContainerStatus> container_status(const Context& ctx, const std::string& id);
  /// Returns the exit code. kTimeout: killed after the time limit.
  Result<int> exec(const Context& ctx, const std::string& id,
                   const std::vector<std::string>& command);

  /// Nothing: the runtime lacks the image. References are completed by the runtime: "web" is
  /// docker.io/library/web:latest.
  Result<std::optional<Image>> image(const Context& ctx, const std::string& reference);

 private:
  Result<std::string> call(const Context& ctx, Duration limit, const char* method,
                           const std::string& request);

  net::GrpcClient& grpc_;
};

}  // namespace varda::node::cri
