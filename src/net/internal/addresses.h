// How many connections each address has to a server.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/mutex.h"

namespace varda::net::internal {

/// Who "192.0.2.7:4711" and "[2001:db8::1]:4711" are: the host, of IPv6 its first 64 bits, since a host has all addresses below
/// them. Anything else, as a Unix socket's, is nobody: "".
std::string host_of_peer(std::string_view peer);

/// Thread-safe.
class Addresses {
 public:
  /// Before the first add(). 0: any number.
  void limit(std::size_t per_address) { limit_ = per_address; }
  /// False: it would be one too many, and is not counted.
  bool add(const std::string& peer) EXCLUDES(mutex_);
  void remove(const std::string& peer) EXCLUDES(mutex_);

 private:
  std::size_t limit_ = 0;
  Mutex mutex_;
  std::unordered_map<std::string, std::size_t> counts_ GUARDED_BY(mutex_);
};

}  // namespace varda::net::internal
