// Counts the connections of each client address.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/mutex.h"

namespace varda::net::internal {

/// The host of "192.0.2.7:4711" or "[2001:db8::1]:4711". For IPv6 it is the first 64 bits, since
/// one host owns all addresses below that prefix. "" for anything else, such as a Unix socket.
std::string host_of_peer(std::string_view peer);

/// Thread-safe.
class Addresses {
 public:
  /// Call before the first add(). 0: no limit.
  void limit(std::size_t per_address) { limit_ = per_address; }
  /// False: the limit is reached, and the connection is not counted.
  bool add(const std::string& peer) EXCLUDES(mutex_);
  void remove(const std::string& peer) EXCLUDES(mutex_);

 private:
  std::size_t limit_ = 0;
  Mutex mutex_;
  std::unordered_map<std::string, std::size_t> counts_ GUARDED_BY(mutex_);
};

}  // namespace varda::net::internal
