// Open files: each connection is one.
#pragma once

#include <cstddef>

namespace varda::app {

/// Raises the limit of open files of this process so far that `wanted` connections fit beside what it has open otherwise, if the
/// hard limit lets it; how many do. What is started from here inherits the limit.
std::size_t make_room_for_connections(std::size_t wanted);

}  // namespace varda::app
