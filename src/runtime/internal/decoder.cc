#include "runtime/internal/decoder.h"

#include <exception>

#include "base/log.h"

namespace varda::runtime {

using ObjectPtr = std::shared_ptr<const void>;

Result<ObjectPtr> Decoder::decode(const codec::Json& tree) const {
  try {
    return decode_(tree);
  } catch (const std::exception& e) {
    return Error(Code::kInternal, std::string("exception: ") + e.what());
  }
}

std::uint64_t Decoder::add(ObjectPtr object) {
  ObjectPtr last;  // destroyed after the lock is released
  MutexLock lock(mutex_);
  last = cache(++last_id_, std::move(object));
  return last_id_;
}

ObjectPtr Decoder::object(std::uint64_t id, const std::string& text) {
  {
    MutexLock lock(mutex_);
    if (const auto found = places_.find(id); found != places_.end()) {
      cached_.splice(cached_.begin(), cached_, found->second);
      return found->second->second;
    }
  }
  const auto tree = codec::parse_json(text);
  auto object = tree.ok() ? decode(*tree) : tree.error();
  if (!object.ok()) {
    log::error("cannot decode object a second time, treated as missing",
               {{"error", object.error()}});
    return nullptr;
  }
  ObjectPtr last;
  MutexLock lock(mutex_);
  if (const auto found = places_.find(id); found != places_.end()) return found->second->second;
  last = cache(id, *object);
  return std::move(*object);
}

std::size_t Decoder::cached() const {
  MutexLock lock(mutex_);
  return cached_.size();
}

/// Returns the evicted object, if any.
ObjectPtr Decoder::cache(std::uint64_t id, ObjectPtr object) {
  cached_.emplace_front(id, std::move(object));
  places_.emplace(id, cached_.begin());
  if (cached_.size() <= cached_max_) return nullptr;
  ObjectPtr evicted = std::move(cached_.back().second);
  places_.erase(cached_.back().first);
  cached_.pop_back();
  return evicted;
}

}  // namespace varda::runtime
