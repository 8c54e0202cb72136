#include "net/internal/grpc_call.h"

#include <utility>

namespace varda::net::internal {

void CallState::read() {
  {
    const MutexLock lock(mutex_);
    if (over_) return;
    read_ = true;
  }
  (*wake_)();
}

Status CallState::send(SharedMessage message) {
  {
    const MutexLock lock(mutex_);
    if (over_ || finish_) return Error(Code::kCancelled, "the call is over");
    const std::size_t bytes = message->size();
    if (queued_ > 0 && queued_bytes_ + bytes > send_bytes_max_)
      return Error(Code::kExhausted, "earlier messages wait for the client");
    ++queued_;
    queued_bytes_ += bytes;
    messages_.push_back(std::move(message));
  }
  (*wake_)();
  return {};
}

void CallState::finish(Status status) {
  {
    const MutexLock lock(mutex_);
    if (over_ || finish_) return;
    finish_ = std::move(status);
  }
  (*wake_)();
}

bool CallState::take_read() {
  const MutexLock lock(mutex_);
  return std::exchange(read_, false);
}

std::deque<SharedMessage> CallState::take_messages() {
  const MutexLock lock(mutex_);
  return std::exchange(messages_, {});
}

std::optional<Status> CallState::finished() const {
  const MutexLock lock(mutex_);
  return finish_ && messages_.empty() ? finish_ : std::nullopt;
}

bool CallState::sent(std::size_t bytes) {
  const MutexLock lock(mutex_);
  if (over_) return false;
  queued_bytes_ -= bytes;
  return --queued_ == 0;
}

void CallState::end() {
  std::deque<SharedMessage> dropped;
  const MutexLock lock(mutex_);
  over_ = true;
  dropped.swap(messages_);
}

}  // namespace varda::net::internal
