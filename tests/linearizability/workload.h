// Clients that all work on the same few objects at once, and write down what they asked and were told.
#pragma once

#include <cstdint>

#include "history.h"
#include "net/http.h"

namespace varda::linearizability {

struct Load {
  std::uint64_t seed = 1;
  int clients = 6;
  int operations = 120;  // of each client
  int watchers = 3;      // besides the one that keeps the log
};

/// Against any API server, through `http`: a thread a client and a watcher. Ends by itself when the work is done. CHECKs that the
/// server gives no answer that none of the operations can have (500, 429 ...).
History run(net::HttpClient& http, const Load& load);

}  // namespace varda::linearizability
