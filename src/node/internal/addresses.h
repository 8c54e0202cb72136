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

/// True if no socket is bound there now. A port below 1024 counts as free for an ordinary user, who
/// cannot bind it: programs in pods often declare a port of their container and use another.
bool is_free(const std::string& address, const Port& port);

/// Picks a random address that is not in `taken` and where all `ports` are free. kExhausted: not
/// found after many tries.
Result<std::string> pick_address(Rng& rng, const std::set<std::string>& taken,
                                 const std::vector<Port>& ports);

}  // namespace varda::node::internal
