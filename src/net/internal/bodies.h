// Shares the memory for large request bodies among the connections of a server.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace varda::net::internal {

class Loop;

/// Counts bodies until their requests are answered, and chooses the bodies that give way.
/// Thread-safe.
class Bodies {
 public:
  struct Limits {
    std::size_t all = 0, per_address = 0;  // 0: no limit
  };
  /// A connection, which has at most one body.
  struct Place {
    Loop* loop = nullptr;
    std::uint64_t connection = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  enum class Room {
    kFound,
    kNone,     // this body is the slowest, or no other is unfinished
    kEvicted,  // this body has lost its room to another body
  };
  struct Growth {
    Room room = Room::kFound;
    std::vector<Place> evicted;  // the caller closes these bodies
  };

  /// Call before the first grow().
  void limit(Limits limits) { limits_ = limits; }
  bool limited() const { return limits_.all > 0; }

  /// The unfinished body of `place` has `bytes` bytes now. Beyond a limit, bodies lose their room,
  /// the one with the earliest `waiting_since` first. `host`: the client's address, or "" if
  /// unknown.
  Growth grow(const Place& place, const std::string& host, std::size_t bytes,
              SteadyTime waiting_since) EXCLUDES(mutex_);
  /// The body is complete and keeps its room until release(). False: it has lost it already.
  [[nodiscard]] bool complete(const Place& place) EXCLUDES(mutex_);
  /// Ignored if unknown.
  void release(const Place& place) EXCLUDES(mutex_);

 private:
  enum class State { kUnfinished, kComplete, kEvicted };
  struct Body {
    State state = State::kUnfinished;
    std::string host;
    std::size_t bytes = 0;
    SteadyTime waiting_since;
  };
  using Map = std::map<Place, Body>;
  void count(Body& body, std::size_t bytes) REQUIRES(mutex_);
  /// The unfinished body that waits longest, of all bodies or of one address. One exists.
  Map::iterator slowest(const std::string* host) REQUIRES(mutex_);

  Limits limits_;
  Mutex mutex_;
  Map bodies_ GUARDED_BY(mutex_);
  std::size_t all_ GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, std::size_t> by_host_ GUARDED_BY(mutex_);
};

}  // namespace varda::net::internal
