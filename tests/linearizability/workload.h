// Clients that work concurrently on the same few objects, and record requests and answers.
#pragma once

#include <cstdint>

#include "history.h"
#include "net/http.h"

namespace varda::linearizability {

struct Load {
  std::uint64_t seed = 1;
  int clients = 6;
  int operations = 120;  // per client
  int watchers = 3;      // besides the one that records the log
};

/// Runs against any API server, through `http`, with one thread per client and watcher, until the
/// work is done. CHECKs that every answer is one that an operation can have (no 500, 429 ...).
History run(net::HttpClient& http, const Load& load);

}  // namespace varda::linearizability
