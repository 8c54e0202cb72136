#include "net/internal/bodies.h"

#include "base/check.h"

namespace varda::net::internal {

Bodies::Growth Bodies::grow(const Place& place, const std::string& host, std::size_t bytes,
                            SteadyTime waiting_since) {
  MutexLock lock(mutex_);
  const auto [place_entry, added] = bodies_.try_emplace(place);
  Body& body = place_entry->second;
  if (added) body.host = host;
  if (body.state == State::kEvicted) return {.room = Room::kEvicted, .evicted = {}};
  body.waiting_since = waiting_since;
  count(body, bytes);
  Growth growth;
  while (true) {
    const bool over_share =
        limits_.per_address > 0 && !host.empty() && by_host_[host] > limits_.per_address;
    if (!over_share && all_ <= limits_.all) return growth;
    const auto loser = slowest(over_share ? &host : nullptr);
    count(loser->second, 0);
    loser->second.state = State::kEvicted;
    if (loser == place_entry) {
      growth.room = Room::kNone;
      return growth;
    }
    growth.evicted.push_back(loser->first);
  }
}

bool Bodies::complete(const Place& place) {
  MutexLock lock(mutex_);
  const auto found = bodies_.find(place);
  if (found == bodies_.end() || found->second.state == State::kEvicted) return false;
  found->second.state = State::kComplete;
  return true;
}

void Bodies::release(const Place& place) {
  MutexLock lock(mutex_);
  const auto found = bodies_.find(place);
  if (found == bodies_.end()) return;
  count(found->second, 0);
  bodies_.erase(found);
}

void Bodies::count(Body& body, std::size_t bytes) {
  all_ = all_ - body.bytes + bytes;
  if (!body.host.empty()) {
    std::size_t& sum = by_host_[body.host];
    sum = sum - body.bytes + bytes;
    if (sum == 0) by_host_.erase(body.host);
  }
  body.bytes = bytes;
}

Bodies::Map::iterator Bodies::slowest(const std::string* host) {
  auto found = bodies_.end();
  for (auto one = bodies_.begin(); one != bodies_.end(); ++one) {
    if (one->second.state != State::kUnfinished || (host != nullptr && one->second.host != *host))
      continue;
    if (found == bodies_.end() || one->second.waiting_since < found->second.waiting_since)
      found = one;
  }
  CHECK(found != bodies_.end());
  return found;
}

}  // namespace varda::net::internal
