// Ending all containers of a runner that does not run itself: what `varda down` does.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "base/result.h"
#include "os/file_system.h"

namespace varda::node {

/// SIGTERM to every container of a runner with that root, whichever driver started it, SIGKILL after `grace`. The records stay: the
/// next runner starts the pods again. Returns how many there were. Call it only while no runner works below `root`. One that cannot
/// be ended keeps none of the others: the error comes afterwards, and says what goes on and how it is ended by hand.
Result<std::size_t> end_containers(const os::Path& root, std::chrono::milliseconds grace);

/// The same for containers of other drivers than the one of that scheme: what was left when a node's runner was changed. What goes
/// on is logged.
void end_containers_of_others(const os::Path& root, const std::string& scheme, std::chrono::milliseconds grace);

}  // namespace varda::node
