#include "apiserver/internal/sessions.h"

namespace varda::apiserver {

std::unique_ptr<Sessions::Handle> Sessions::open(const Identity& caller) {
  std::lock_guard publishing(telling_);
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
  std::lock_guard publishing(telling_);
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

void Sessions::on_stop(const std::shared_ptr<WakeCell>& cell) {
  std::lock_guard lock(mutex_);
  if (cells_.size() > 2 * total_ + 16)
    std::erase_if(cells_, [](const auto& weak) { return weak.expired(); });
  cells_.push_back(cell);
}

std::size_t Sessions::count() {
  std::lock_guard lock(mutex_);
  return total_;
}

void Sessions::wake_all() {
  std::vector<std::weak_ptr<WakeCell>> cells;
  {
    std::lock_guard lock(mutex_);
    cells = cells_;
  }
  for (const auto& weak : cells) {
    if (const auto cell = weak.lock()) cell->call();
  }
}

}  // namespace varda::apiserver
