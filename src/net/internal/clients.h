// Limits how many connections of a server each client name may have.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"

namespace varda::net::internal {

class Loop;

/// Thread-safe.
class Clients {
 public:
  struct Limits {
    std::size_t per_name = 0, nameless = 0;  // 0: no limit
  };
  /// Call before the first add().
  void limit(Limits limits) { limits_ = limits; }

  /// Adds a connection of that name ("" if unknown). Beyond the limit, the oldest connection of the
  /// name is closed. A client that lost its link does not know its old connections and uses only
  /// the newest.
  void add(const std::string& name, Loop& loop, std::uint64_t id) EXCLUDES(mutex_);
  void remove(const std::string& name, Loop& loop, std::uint64_t id) EXCLUDES(mutex_);

 private:
  struct Place {
    Loop* loop = nullptr;
    std::uint64_t id = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };
  std::size_t limit_of(const std::string& name) const {
    return name.empty() ? limits_.nameless : limits_.per_name;
  }

  Limits limits_;
  Mutex mutex_;
  std::unordered_map<std::string, std::vector<Place>> places_
      GUARDED_BY(mutex_);  // the oldest first
};

}  // namespace varda::net::internal
