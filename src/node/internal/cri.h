// The part of the container runtime interface (CRI, runtime.v1) that a pod runner needs: plain values here, its messages in cri.cc.
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

/// A pod's sandbox: its namespaces, held by a process that does nothing.
struct SandboxConfig {
  PodConfig pod;
  int attempt = 0;
  Labels labels;
  std::string cgroup_parent;  // empty: wherever the runtime puts it
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
  std::string user_name;  // in the place of a number
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
  std::optional<std::int64_t> uid;  // that its processes run as
  std::string user;                 // the same by name, where it has one
};

enum class CgroupDriver { kUnknown, kSystemd, kCgroupfs };

/// Calls of the two services, blocking. Thread-safe. Every call ends by a deadline of its own, if the context has none before.
/// kUnavailable: nobody answers, or the runtime is still starting.
class Runtime {
 public:
  explicit Runtime(net::GrpcClient& grpc) : grpc_(grpc) {}

  /// "containerd 1.6.20"
  Result<std::string> version(const Context& ctx);
  Result<std::vector<Condition>> status(const Context& ctx);
  /// Which names of cgroups it takes. kUnknown: it does not tell.
  Result<CgroupDriver> cgroup_driver(const Context& ctx);

  Result<std::string> run_sandbox(const Context& ctx, const SandboxConfig& config);
  /// Ends every container in it, too. Fine if it has ended or is gone.
  Status stop_sandbox(const Context& ctx, const std::string& id);
  /// With its containers. Fine if it is gone.
  Status remove_sandbox(const Context& ctx, const std::string& id);
  /// "" while it has none, as with the host's network.
  Result<std::string> sandbox_address(const Context& ctx, const std::string& id);
  Result<std::vector<Sandbox>> sandboxes(const Context& ctx, const Labels& with);

  Result<std::string> create_container(const Context& ctx, const std::string& sandbox, const ContainerSpec& spec,
                                       const SandboxConfig& sandbox_config);
  Status start_container(const Context& ctx, const std::string& id);
  /// SIGTERM, after `grace` SIGKILL; returns when it has ended. Fine if it is gone. A call that is given up leaves it at that.
  Status stop_container(const Context& ctx, const std::string& id, std::chrono::seconds grace);
  /// Also ends it. Fine if it is gone.
  Status remove_container(const Context& ctx, const std::string& id);
  Result<std::vector<Container>> containers(const Context& ctx, const Labels& with);
  Result<ContainerStatus> container_status(const Context& ctx, const std::string& id);
  /// Exit code. kTimeout: it did not end in time and was killed.
  Result<int> exec(const Context& ctx, const std::string& id, const std::vector<std::string>& command);

  /// Nothing: the runtime has no such image. A reference is completed as the runtime does: "web" is docker.io/library/web:latest.
  Result<std::optional<Image>> image(const Context& ctx, const std::string& reference);

 private:
  Result<std::string> call(const Context& ctx, Duration limit, const char* method, const std::string& request);

  net::GrpcClient& grpc_;
};

}  // namespace varda::node::cri
