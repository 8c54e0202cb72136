#include "node/end_containers.h"

#include <signal.h>
#include <vector>

#include "base/context.h"
#include "node/internal/marked.h"
#include "os/process.h"

namespace varda::node {

std::size_t end_containers(const os::Path& root, std::chrono::milliseconds grace) {
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

}  // namespace varda::node
