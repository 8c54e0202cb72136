// Cache of recently parsed objects. Every watch with a selector parses a changed object, all at
// about the same time.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "apiserver/kind.h"
#include "base/mutex.h"
#include "store/store.h"

namespace varda::apiserver {

/// Thread-safe.
class RecentTrees {
 public:
  /// The stored value as an object of `kind`, without a resourceVersion. Null: the value is
  /// unreadable.
  std::shared_ptr<const Json> get(const Kind& kind,
                                  const std::shared_ptr<const store::Value>& value);

 private:
  using Key = std::pair<std::uint64_t, const store::Value*>;  // Kind::number(), value
  struct Tree {
    std::shared_ptr<const store::Value> value;  // kept alive, so that its address is not reused
    std::shared_ptr<const Json> object;
  };
  Mutex mutex_;
  std::map<Key, Tree> trees_ GUARDED_BY(mutex_);
  std::deque<Key> order_ GUARDED_BY(mutex_);  // oldest first
  std::size_t bytes_ GUARDED_BY(mutex_) = 0;  // total size of the values
};

}  // namespace varda::apiserver
