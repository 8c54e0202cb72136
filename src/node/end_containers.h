// Ending all containers of a runner that does not run itself: what `varda down` does.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "base/result.h"
#include "os/file_system.h"

namespace varda::node {

/// SIGTERM to every container of a runner with that root, whichever driver started it, SIGKILL after `grace`. The records stay: the
/// next runner starts the pods again. Returns how many there were. Call it only while no runner works below `root`. A containerd
/// that does not answer keeps its containers, and a warning says so.
std::size_t end_containers(const os::Path& root, std::chrono::milliseconds grace);

/// The same for containers of other drivers than the one of that scheme: what was left when a node's runner was changed.
void end_containers_of_others(const os::Path& root, const std::string& scheme, std::chrono::milliseconds grace);

}  // namespace varda::node
