#include "node/end_containers.h"

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

std::size_t end_processes(const os::Path& root, std::chrono::milliseconds grace) {
  std::size_t count = 0;
  // Again until nothing is found: a container may have started children while it was asked to end.
  for (int round = 0; round < 10; ++round) {
    const auto found = internal::find_marked(root.string());
    if (found.empty()) break;
    if (round == 0) count = found.size();
    const int signal = round == 0 && grace.count() > 0 ? SIGTERM : SIGKILL;
    for (const auto& process : found) (void)os::signal_process(process.id, signal, process.leads_group);
    const Context until = Context::background().with_timeout(round == 0 ? grace : std::chrono::seconds(5));
    for (const auto& process : found) (void)os::wait_for_exit(until, process.id);
    for (const auto& process : found) (void)os::real_processes().poll(process.id);
  }
  return count;
}

Result<std::size_t> end_pods(const os::Path& root, const std::string& socket, std::chrono::milliseconds grace) {
  const auto grpc = net::make_grpc_client({.unix_socket = socket});
  cri::Runtime runtime(*grpc);
  const Context ctx = Context::background();
  const cri::Labels mine = {{internal::kRunnerLabel, internal::runner_mark(root)}};
  TRY(const std::vector<cri::Container> containers, runtime.containers(ctx, mine));
  std::size_t count = 0;
  {
    std::vector<std::jthread> stops;  // side by side: each may take its grace period
    for (const cri::Container& container : containers) {
      if (container.state != cri::ContainerState::kRunning) continue;
      ++count;
      stops.emplace_back([&runtime, &ctx, id = container.id, grace] {
        // What does not end here ends with its sandbox.
        (void)runtime.stop_container(ctx, id, std::chrono::ceil<std::chrono::seconds>(grace));
      });
    }
  }
  TRY(const std::vector<cri::Sandbox> sandboxes, runtime.sandboxes(ctx, mine));
  for (const cri::Sandbox& sandbox : sandboxes) {
    TRY_VOID(runtime.stop_sandbox(ctx, sandbox.id));
    TRY_VOID(runtime.remove_sandbox(ctx, sandbox.id));
  }
  return count;
}

std::size_t end_in_containerd(const os::Path& root, std::chrono::milliseconds grace) {
  const auto note = internal::read_containerd_note(root);
  if (!note) return 0;
  const Result<std::size_t> ended = end_pods(root, note->socket, grace);
  const Status gone = ended.ok() ? internal::remove_containerd_note(root) : Status(ended.error());
  if (!gone.ok()) log::warn("containers in containerd may go on", {{"root", root.string()}, {"error", gone.error()}});
  return ended.value_or(0);
}

}  // namespace

std::size_t end_containers(const os::Path& root, std::chrono::milliseconds grace) {
  return end_processes(root, grace) + end_in_containerd(root, grace);
}

void end_containers_of_others(const os::Path& root, const std::string& scheme, std::chrono::milliseconds grace) {
  if (scheme != "process") (void)end_processes(root, grace);
  if (scheme != "containerd") (void)end_in_containerd(root, grace);
}

}  // namespace varda::node
