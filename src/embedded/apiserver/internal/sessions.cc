#include "apiserver/internal/sessions.h"

namespace varda::apiserver {

std::unique_ptr<Sessions::Handle> Sessions::open(const Identity& caller) {
  std::lock_guard publishing(notify_mutex_);
  bool first = false;
  {
    std::lock_guard lock(mutex_);
    if (total_ >= watches_max_) return nullptr;
    ++total_;
    first = ++open_[caller.name] == 1;
  }
  if (first && observer_ != nullptr) observer_->opened(caller);
  return std::make_unique<Handle>(*this, caller);
}

void Sessions::close(const Identity& caller) {
  std::lock_guard publishing(notify_mutex_);
  bool last = false;
  {
    std::lock_guard lock(mutex_);
    --total_;
    const auto found = open_.find(caller.name);
    if (found != open_.end() && --found->second == 0) {
      open_.erase(found);
      last = true;
    }
  }
  if (last && observer_ != nullptr) observer_->closed(caller);
}

std::size_t Sessions::count() {
  std::lock_guard lock(mutex_);
  return total_;
}

}  // namespace varda::apiserver
