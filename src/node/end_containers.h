// Stops all containers of a runner that is not running, as `varda down` does.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "base/result.h"
#include "os/file_system.h"

namespace varda::node {

/// Sends SIGTERM to every container of the runner with that root, of any driver, and SIGKILL after
/// `grace`. Records stay, so the next runner starts the pods again. Returns the number of
/// containers. Call it only while no runner works below `root`. If a container
/// cannot be stopped, the others are stopped anyway. The error then lists what still runs, and how
/// to stop it by hand.
Result<std::size_t> end_containers(const os::Path& root, std::chrono::milliseconds grace);

/// Does the same for containers of all drivers but `scheme`, after a node's runner was changed.
/// Containers that keep running are logged.
void end_containers_of_others(const os::Path& root, const std::string& scheme,
                              std::chrono::milliseconds grace);

}  // namespace varda::node
