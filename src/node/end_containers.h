// Ending all containers of a runner that does not run itself: what `varda down` does.
#pragma once

#include <chrono>
#include <cstddef>

#include "os/file_system.h"

namespace varda::node {

/// SIGTERM to every container of the process driver with that root, SIGKILL after `grace`. The records stay: the next runner starts
/// the pods again. Returns how many processes there were. Call it only while no runner works below `root`.
std::size_t end_containers(const os::Path& root, std::chrono::milliseconds grace);

}  // namespace varda::node
