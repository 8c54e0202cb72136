#include "apiserver/internal/recent_trees.h"

#include "codec/json.h"

namespace varda::apiserver {

namespace {

// Bytes of text; the trees take several times as much.
constexpr std::size_t kBytesMax = 256 << 10;

}  // namespace

std::shared_ptr<const Json> RecentTrees::get(const Kind& kind,
                                             const std::shared_ptr<const store::Value>& value) {
  const Key key{kind.number(), value.get()};
  {
    const MutexLock lock(mutex_);
    if (const auto found = trees_.find(key); found != trees_.end()) return found->second.object;
  }
  auto parsed = codec::parse_json(*value, {.depth_max = 1000});
  if (!parsed.ok()) return nullptr;
  kind.from_storage(*parsed);
  auto object = std::make_shared<const Json>(std::move(*parsed));
  if (value->size() > kBytesMax) return object;
  const MutexLock lock(mutex_);
  if (!trees_.emplace(key, Tree{value, object}).second) return object;
  order_.push_back(key);
  bytes_ += value->size();
  while (bytes_ > kBytesMax) {
    const auto oldest = trees_.find(order_.front());
    bytes_ -= oldest->second.value->size();
    trees_.erase(oldest);
    order_.pop_front();
  }
  return object;
}

}  // namespace varda::apiserver
