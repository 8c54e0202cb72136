// The last objects that somebody looked into, as trees: a change is looked into by every watch with a selector, at about the same
// time.
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
  /// What lies in the store, as an object of `kind`, but without a resourceVersion; null: it is unreadable.
  std::shared_ptr<const Json> get(const Kind& kind, const std::shared_ptr<const store::Value>& value);

 private:
  using Key = std::pair<std::uint64_t, const store::Value*>;  // the kind's number
  struct Tree {
    std::shared_ptr<const store::Value> value;  // kept, so that another value is never at its place
    std::shared_ptr<const Json> object;
  };
  Mutex mutex_;
  std::map<Key, Tree> trees_ GUARDED_BY(mutex_);
  std::deque<Key> order_ GUARDED_BY(mutex_);  // the oldest first
  std::size_t bytes_ GUARDED_BY(mutex_) = 0;  // of the values
};

}  // namespace varda::apiserver
