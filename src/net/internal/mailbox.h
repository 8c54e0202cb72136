// Answers and wake-ups from other threads to a loop. Outlives the loop and drops late mail.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "net/http.h"

namespace varda::net::internal {

struct Mail {
  std::uint64_t connection = 0;
  std::uint64_t request = 0;         // of that connection
  std::optional<Response> response;  // absent: the stream of that request may have bytes
};

/// Thread-safe.
class Mailbox {
 public:
  /// `ring` is called with the lock held when the box becomes non-empty, so it may only post.
  explicit Mailbox(std::function<void()> ring) : ring_(std::move(ring)) {}

  void put(Mail mail) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!open_) return;  // `mail` dies with the caller's frame, after the lock
    mail_.push_back(std::move(mail));
    if (mail_.size() == 1) ring_();
  }
  std::vector<Mail> take() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return std::exchange(mail_, {});
  }
  /// No `ring` call follows this.
  void close() EXCLUDES(mutex_) {
    std::vector<Mail> dropped;
    MutexLock lock(mutex_);
    open_ = false;
    dropped.swap(mail_);
  }

 private:
  Mutex mutex_;
  const std::function<void()> ring_;
  bool open_ GUARDED_BY(mutex_) = true;
  std::vector<Mail> mail_ GUARDED_BY(mutex_);
};

/// Wake-ups of one stream: any number between two reads make one piece of mail.
struct StreamWake {
  std::shared_ptr<Mailbox> mailbox;
  std::uint64_t connection = 0;
  std::uint64_t request = 0;
  std::atomic<bool> pending{false};

  void operator()() {
    if (!pending.exchange(true))
      mailbox->put({.connection = connection, .request = request, .response = std::nullopt});
  }
};

}  // namespace varda::net::internal
