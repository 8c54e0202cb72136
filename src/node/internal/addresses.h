// Addresses of pods: every pod without hostNetwork gets a separate one in 127.64.0.0/10, so that
// ports never collide.
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

/// Whether a socket could be bound there now.
bool can_bind(const std::string& address, const Port& port);

/// Picks a random address that is not in `taken` and where all `ports` are free. kExhausted: not
/// found after many tries.
Result<std::string> pick_address(Rng& rng, const std::set<std::string>& taken,
                                 const std::vector<Port>& ports);

}  // namespace varda::node::internal
