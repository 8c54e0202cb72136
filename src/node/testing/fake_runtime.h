// An in-memory container runtime that implements the CRI like containerd, with injected faults.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "net/grpc_client.h"

namespace varda::node::testing {

/// Thread-safe.
class FakeRuntime {
 public:
  struct Sandbox {
    std::map<std::string, std::string> labels;
    std::string name, log_directory, hostname;
    int attempt = 0;
    int network = 0;  // NamespaceMode
    bool ready = true;
    std::string config;  // PodSandboxConfig as received
  };
  struct Container {
    std::string sandbox, name, image, log_path;
    std::map<std::string, std::string> labels, environment, mounts;  // container path -> host path
    std::vector<std::string> command, arguments;
    int attempt = 0;
    int state = 0;  // ContainerState
    int exit_code = 0;
    bool ever_ran = false;
    std::string reason;
    bool obeys_terminate = true;
    std::string config;  // ContainerConfig as received
  };

  /// A client that calls this object without a socket.
  std::unique_ptr<net::GrpcClient> client();
  Result<std::string> call(const Context& ctx, std::string_view method, std::string_view message);

  enum class Fault { kNotDone, kAnswerLost };
  /// The next call of that method ("StartContainer") fails, before or after its effect. A start
  /// that fails with kInternal leaves an exited container that never ran, like containerd with a
  /// broken executable.
  void fail_next(const std::string& method, Fault fault,
                 Error error = Error(Code::kUnavailable, "the connection broke"));
  /// Lets every call fail from now on, or ends that.
  void set_down(bool down);
  void set_images(std::set<std::string> names);
  void set_image_user(std::optional<int> uid, std::string name);
  /// Lets a container exit.
  void end(const std::string& id, int code, const std::string& reason = "");
  void end_sandbox(const std::string& id);
  void set_obeys_terminate(bool obeys);
  void set_exec(int code);
  /// Sets the configuration in the verbose status, and the answer of RuntimeConfig; nothing: no
  /// such method.
  void set_config(std::string status_config, std::optional<std::string> runtime_config = {});

  std::map<std::string, Sandbox> sandboxes() const;
  std::map<std::string, Container> containers() const;
  std::vector<std::string> running() const;  // ids
  /// Names of all calls except read-only ones.
  std::vector<std::string> changes() const;
  /// Waits until `holds`, at most 60 s.
  bool wait_for(const std::function<bool(const FakeRuntime&)>& holds) const;

 private:
  Result<std::string> run(const Context& ctx, const std::string& method, std::string_view message)
      REQUIRES(mutex_);
  Result<std::string> run_sandbox(std::string_view config) REQUIRES(mutex_);
  Result<std::string> create_container(std::string_view message) REQUIRES(mutex_);
  Result<std::string> stop_container(const Context& ctx, const std::string& id, std::int64_t grace)
      REQUIRES(mutex_);
  std::string list_sandboxes(std::string_view message) const REQUIRES(mutex_);
  std::string list_containers(std::string_view message) const REQUIRES(mutex_);
  Result<std::string> container_status(const std::string& id) const REQUIRES(mutex_);
  std::string image_status(std::string_view message) const REQUIRES(mutex_);
  void end_containers_of(const std::string& sandbox) REQUIRES(mutex_);

  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::map<std::string, Sandbox> sandboxes_ GUARDED_BY(mutex_);
  std::map<std::string, Container> containers_ GUARDED_BY(mutex_);
  std::map<std::string, std::pair<Fault, Error>> faults_ GUARDED_BY(mutex_);
  std::vector<std::string> changes_ GUARDED_BY(mutex_);
  std::set<std::string> images_ GUARDED_BY(mutex_) = {"docker.io/library/web:latest"};
  std::optional<int> image_uid_ GUARDED_BY(mutex_);
  std::string image_user_ GUARDED_BY(mutex_);
  std::string status_config_ GUARDED_BY(mutex_);
  std::optional<std::string> runtime_config_ GUARDED_BY(mutex_);
  int last_ GUARDED_BY(mutex_) = 0;
  int exec_code_ GUARDED_BY(mutex_) = 0;
  bool down_ GUARDED_BY(mutex_) = false;
  bool obeys_terminate_ GUARDED_BY(mutex_) = true;
};

}  // namespace varda::node::testing
