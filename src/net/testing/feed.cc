#include "net/testing/feed.h"

namespace varda::net::testing {

class Feed::Stream final : public BodyStream {
 public:
  explicit Stream(std::shared_ptr<Feed> feed) : feed_(std::move(feed)) {}
  ~Stream() override {
    MutexLock lock(feed_->mutex_);
    feed_->wake_ = nullptr;
    feed_->released_ = true;
    feed_->changed_.notify_all();
  }
  std::optional<std::string> read() override {
    MutexLock lock(feed_->mutex_);
    if (feed_->queue_.empty())
      return feed_->ended_ ? std::nullopt : std::optional<std::string>(std::string());
    std::string bytes = std::move(feed_->queue_.front());
    feed_->queue_.pop_front();
    feed_->taken_bytes_ += bytes.size();
    return bytes;
  }
  void on_ready(std::function<void()> wake) override {
    MutexLock lock(feed_->mutex_);
    feed_->wake_ = std::move(wake);
  }

 private:
  const std::shared_ptr<Feed> feed_;
};

std::unique_ptr<BodyStream> Feed::stream() { return std::make_unique<Stream>(shared_from_this()); }

void Feed::wake() {
  MutexLock lock(mutex_);
  if (wake_) wake_();
}

void Feed::write(std::string bytes) {
  {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(bytes));
  }
  wake();
}

void Feed::end() {
  {
    MutexLock lock(mutex_);
    ended_ = true;
  }
  wake();
}

bool Feed::released() const {
  MutexLock lock(mutex_);
  return released_;
}

bool Feed::wait_released(std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  MutexLock lock(mutex_);
  while (!released_) {
    if (!changed_.wait_until(mutex_, until)) return released_;
  }
  return true;
}

std::size_t Feed::taken_bytes() const {
  MutexLock lock(mutex_);
  return taken_bytes_;
}

}  // namespace varda::net::testing
