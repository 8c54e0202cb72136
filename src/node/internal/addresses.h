// Addresses of pods: every pod without hostNetwork has one of its own in 127.64.0.0/10, so that ports never collide.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/rng.h"

namespace varda::node::internal {

struct Port {
  int number = 0;
  bool udp = false;
};

/// True if a socket could be bound there now.
bool can_bind(const std::string& address, const Port& port);

/// A random one that is not in `taken` and where all `ports` are free. kExhausted: none found in a fair number of tries.
Result<std::string> pick_address(Rng& rng, const std::set<std::string>& taken, const std::vector<Port>& ports);

}  // namespace varda::node::internal
