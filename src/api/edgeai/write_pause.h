// The rate at which one writer writes one EdgeNode.
#pragma once

#include <cstddef>

#include "base/clock.h"

namespace varda::api {

/// The wait after a write of an EdgeNode, until the same writer writes the next changes together.
///
/// An API server reads, checks, stores and sends the whole object for every write, also for a
/// patch. So the cost of a write grows with the lists, and changes of many items must not become as
/// many writes. `took`: duration of the last write. The wait is five times as long, so a busy
/// server gets fewer writes. It is at most 10 ms for each of the `items` in the written lists.
Duration write_pause(std::size_t items, Duration took);

}  // namespace varda::api
