// The limit of open files; each connection is an open file.
#pragma once

#include <cstddef>

namespace varda::app {

/// Raises this process's limit of open files, so that `wanted` connections fit beside its other
/// files. Returns how many connections fit, since the hard limit may be lower. Child processes
/// inherit the limit.
std::size_t make_room_for_connections(std::size_t wanted);

}  // namespace varda::app
