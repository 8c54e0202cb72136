// A response body that a test writes piece by piece.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "net/http.h"

namespace varda::net::testing {

/// Thread-safe. Made with make_shared.
class Feed : public std::enable_shared_from_this<Feed> {
 public:
  /// The reading side; released() shows its destruction.
  std::unique_ptr<BodyStream> stream();
  void write(std::string bytes) EXCLUDES(mutex_);
  void end() EXCLUDES(mutex_);
  bool released() const EXCLUDES(mutex_);
  bool wait_released(std::chrono::milliseconds limit) EXCLUDES(mutex_);
  /// Bytes the reader has taken.
  std::size_t taken_bytes() const EXCLUDES(mutex_);

 private:
  class Stream;
  void wake() EXCLUDES(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<std::string> queue_ GUARDED_BY(mutex_);
  bool ended_ GUARDED_BY(mutex_) = false;
  bool released_ GUARDED_BY(mutex_) = false;
  std::size_t taken_bytes_ GUARDED_BY(mutex_) = 0;
  std::function<void()> wake_ GUARDED_BY(mutex_);
};

}  // namespace varda::net::testing
