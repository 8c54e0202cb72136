// A fake file watch; the test makes the changes.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "os/file_watch.h"

namespace varda::os::testing {

/// Thread-safe.
class MemoryFileWatch final : public FileWatch {
 public:
  struct Watched {
    Path path;
    Scope scope = Scope::kNames;
  };

  /// Reports a change at `path` to its watches, and to watches of a folder above.
  void change(const Path& path) {
    const MutexLock lock(mutex_);
    for (const auto& [id, watched] : watched_) {
      const std::string folder = watched.path.string() + "/";
      if (watched.path == path ||
          (watched.scope == Scope::kFolder && path.string().starts_with(folder)))
        changed_.insert(id);
    }
    woken_.notify_all();
  }
  /// Sets the result of later watch() calls. An error also stops all notifications.
  void refuse(Status status) {
    const MutexLock lock(mutex_);
    answer_ = std::move(status);
    if (!answer_.ok()) watched_.clear();
  }
  std::map<Id, Watched> watched() const {
    const MutexLock lock(mutex_);
    return watched_;
  }

  Status watch(Id id, const Path& path, Scope scope) override {
    const MutexLock lock(mutex_);
    if (answer_.ok()) watched_[id] = {path, scope};
    return answer_;
  }
  void unwatch(Id id) override {
    const MutexLock lock(mutex_);
    watched_.erase(id);
    changed_.erase(id);
  }
  Status wait(const Context& ctx) override {
    const SteadyTime until = ctx.deadline().value_or(SteadyTime::max());
    const MutexLock lock(mutex_);
    while (changed_.empty() && woken_.wait_until(mutex_, ctx.stop_token(), until)) continue;
    return ctx.check();
  }
  bool pending() override {
    const MutexLock lock(mutex_);
    return !changed_.empty();
  }
  std::vector<Id> take() override {
    const MutexLock lock(mutex_);
    std::vector<Id> out(changed_.begin(), changed_.end());
    changed_.clear();
    return out;
  }

 private:
  mutable Mutex mutex_;
  CondVar woken_;
  std::map<Id, Watched> watched_ GUARDED_BY(mutex_);
  std::set<Id> changed_ GUARDED_BY(mutex_);
  Status answer_ GUARDED_BY(mutex_);
};

}  // namespace varda::os::testing
