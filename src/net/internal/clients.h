// Whose the connections of a server are, so that nobody has more of them than he may.
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
    std::size_t per_name = 0, nameless = 0;  // 0: any number
  };
  /// Before the first add().
  void limit(Limits limits) { limits_ = limits; }

  /// One more connection of that name ("": of nobody known). If it is one too many, the oldest of them is told to close: whoever
  /// lost his link does not know of his old connections, and has use for the newest alone.
  void add(const std::string& name, Loop& loop, std::uint64_t id) EXCLUDES(mutex_);
  void remove(const std::string& name, Loop& loop, std::uint64_t id) EXCLUDES(mutex_);

 private:
  struct Place {
    Loop* loop = nullptr;
    std::uint64_t id = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };
  std::size_t limit_of(const std::string& name) const { return name.empty() ? limits_.nameless : limits_.per_name; }

  Limits limits_;
  Mutex mutex_;
  std::unordered_map<std::string, std::vector<Place>> places_ GUARDED_BY(mutex_);  // the oldest first
};

}  // namespace varda::net::internal
