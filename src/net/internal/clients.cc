#include "net/internal/clients.h"

#include <algorithm>

#include "net/internal/loop.h"

namespace varda::net::internal {

void Clients::add(const std::string& name, Loop& loop, std::uint64_t id) {
  const std::size_t limit = limit_of(name);
  if (limit == 0) return;
  Place oldest;
  {
    MutexLock lock(mutex_);
    std::vector<Place>& places = places_[name];
    places.push_back({&loop, id});
    if (places.size() <= limit) return;
    oldest = places.front();
    places.erase(places.begin());
  }
  oldest.loop->close_later(oldest.id);
}

void Clients::remove(const std::string& name, Loop& loop, std::uint64_t id) {
  if (limit_of(name) == 0) return;
  MutexLock lock(mutex_);
  const auto found = places_.find(name);
  if (found == places_.end()) return;
  const auto place = std::find(found->second.begin(), found->second.end(), Place{&loop, id});
  if (place != found->second.end()) found->second.erase(place);
  if (found->second.empty()) places_.erase(found);
}

}  // namespace varda::net::internal
