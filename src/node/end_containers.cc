#include "node/end_containers.h"

#include <optional>
#include <signal.h>
#include <thread>
#include <vector>

#include "base/context.h"
#include "base/log.h"
#include "net/grpc_client.h"
#include "node/internal/containerd_note.h"
#include "node/internal/cri.h"
#include "node/internal/marked.h"
#include "os/process.h"

namespace varda::node {
namespace {

Result<std::size_t> end_processes(const os::Path& root, std::chrono::milliseconds grace) {
  std::size_t count = 0;
  // Repeat until no process is found: a container may start children while it stops.
  for (int round = 0; round < 10; ++round) {
    const auto found = internal::find_marked(root.string());
    if (found.empty()) return count;
    if (round == 0) count = found.size();
    const int signal = round == 0 && grace.count() > 0 ? SIGTERM : SIGKILL;
    for (const auto& process : found)
      (void)os::signal_process(process.id, signal, process.leads_group);
    const Context until =
        Context::background().with_timeout(round == 0 ? grace : std::chrono::seconds(5));
    for (const auto& process : found) (void)os::wait_for_exit(until, process.id);
    for (const auto& process : found) (void)os::real_processes().poll(process.id);
  }
  std::string pids;
  for (const auto& process : internal::find_marked(root.string()))
    pids += " " + std::to_string(process.id.pid);
  if (pids.empty()) return count;
  return Error(Code::kUnavailable, "processes of containers below " + root.string() +
                                       " do not end; to end them: kill -9" + pids);
}

/// Sandboxes that could not be removed, and the first error.
struct Left {
  std::vector<std::string> sandboxes;
  std::optional<Error> reason;

  void add(const Error& error) {
    if (!reason) reason = error;
  }
};

Result<std::size_t> end_pods(const os::Path& root, const std::string& socket,
                             std::chrono::milliseconds grace, Left& left) {
  const auto grpc = net::make_grpc_client({.unix_socket = socket});
  cri::Runtime runtime(*grpc);
  const Context ctx = Context::background();
  const cri::Labels own_labels = {{internal::kRunnerLabel, internal::runner_mark(root)}};
  TRY(const std::vector<cri::Container> containers, runtime.containers(ctx, own_labels));
  std::size_t count = 0;
  {
    std::vector<std::jthread> stops;  // in parallel, because each may take its grace period
    for (const cri::Container& container : containers) {
      if (container.state != cri::ContainerState::kRunning) continue;
      ++count;
      stops.emplace_back([&runtime, &ctx, id = container.id, grace] {
        // A container that does not stop here ends with its sandbox.
        (void)runtime.stop_container(ctx, id, std::chrono::ceil<std::chrono::seconds>(grace));
      });
    }
  }
  TRY(const std::vector<cri::Sandbox> sandboxes, runtime.sandboxes(ctx, own_labels));
  for (const cri::Sandbox& sandbox : sandboxes) {
    Status ended = runtime.stop_sandbox(ctx, sandbox.id);
    if (ended.ok()) ended = runtime.remove_sandbox(ctx, sandbox.id);
    if (ended.ok()) continue;
    left.add(ended.error());
    left.sandboxes.push_back(sandbox.id);
  }
  return count;
}

Result<std::size_t> end_in_containerd(const os::Path& root, std::chrono::milliseconds grace) {
  const auto note = internal::read_containerd_note(root);
  if (!note) return std::size_t{0};
  Left left;
  const Result<std::size_t> ended = end_pods(root, note->socket, grace, left);
  const std::string by_hand = "crictl --runtime-endpoint unix://" + note->socket;
  if (!ended.ok()) {
    return Error(
        ended.error().code(),
        "containers of " + root.string() + " still run in containerd: " + ended.error().message() +
            "; once containerd answers, run `varda down` again, or: " + by_hand + " pods --label " +
            internal::kRunnerLabel + "=" + internal::runner_mark(root) + " and rmp -f each");
  }
  if (left.reason) {
    std::string ids;
    for (const std::string& id : left.sandboxes) ids += " " + id;
    return Error(left.reason->code(),
                 std::to_string(left.sandboxes.size()) + " pods below " + root.string() +
                     " keep running in containerd: " + left.reason->message() +
                     "; run `varda down` again, or: " + by_hand + " rmp -f" + ids);
  }
  TRY_VOID(internal::remove_containerd_note(root));
  return ended;
}

void log_running_containers(const os::Path& root, const Result<std::size_t>& ended) {
  if (!ended.ok())
    log::warn("containers keep running", {{"root", root.string()}, {"error", ended.error()}});
}

}  // namespace

Result<std::size_t> end_containers(const os::Path& root, std::chrono::milliseconds grace) {
  const Result<std::size_t> processes = end_processes(root, grace);
  const Result<std::size_t> pods = end_in_containerd(root, grace);
  if (!processes.ok() && !pods.ok())
    return Error(pods.error().code(), processes.error().message() + "\n" + pods.error().message());
  if (!processes.ok()) return processes.error();
  if (!pods.ok()) return pods.error();
  return *processes + *pods;
}

void end_containers_of_others(const os::Path& root, const std::string& scheme,
                              std::chrono::milliseconds grace) {
  if (scheme != "process") log_running_containers(root, end_processes(root, grace));
  if (scheme != "containerd") log_running_containers(root, end_in_containerd(root, grace));
}

}  // namespace varda::node
