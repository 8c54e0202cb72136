#include "artifact/internal/ahead_source.h"

namespace varda::artifact {

Outcome<std::string> AheadSource::next() {
  if (last_) return *last_;
  if (!thread_.joinable()) {
    if (delivered_ < options_.begin_after_bytes) {
      Outcome<std::string> piece = source_->next();
      if (!piece.ok() || piece->empty()) {
        last_ = piece;
      } else {
        delivered_ += piece->size();
      }
      return piece;
    }
    thread_ = std::thread([this] { read_ahead(); });
  }
  const MutexLock lock(mutex_);
  while (queue_.empty()) changed_.wait(mutex_);
  Outcome<std::string> piece = std::move(queue_.front());
  queue_.pop_front();
  if (!piece.ok() || piece->empty()) {
    last_ = piece;
  } else {
    queue_bytes_ -= piece->size();
    delivered_ += piece->size();
  }
  changed_.notify_all();
  return piece;
}

void AheadSource::read_ahead() {
  for (bool more = true; more;) {
    Outcome<std::string> piece = source_->next();
    more = piece.ok() && !piece->empty();
    const std::size_t size = more ? piece->size() : 0;
    const MutexLock lock(mutex_);
    while (!ending_ && queue_bytes_ != 0 && queue_bytes_ + size > options_.queue_bytes_max)
      changed_.wait(mutex_);
    more = more && !ending_;
    queue_bytes_ += size;
    queue_.push_back(std::move(piece));
    changed_.notify_all();
  }
}

void AheadSource::end() {
  if (!thread_.joinable()) return;
  if (!last_) {
    {
      const MutexLock lock(mutex_);
      ending_ = true;
    }
    stop_.request_stop();
    changed_.notify_all();
  }
  thread_.join();
  if (!last_) last_ = Failure{Reason::kCancelled, Error(Code::kCancelled, "the reader stopped")};
}

}  // namespace varda::artifact
