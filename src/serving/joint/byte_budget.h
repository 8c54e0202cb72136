// ByteBudget: a limit on the total bytes that several holders keep at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "base/mutex.h"

namespace varda::serving::joint {

/// Thread-safe.
class ByteBudget {
 public:
  explicit ByteBudget(std::size_t max) : max_(max) {}
  ByteBudget(const ByteBudget&) = delete;

  /// The bytes of one holder, for one thread at a time. The destructor returns them. Keeps the
  /// budget alive.
  class Share {
   public:
    explicit Share(std::shared_ptr<ByteBudget> budget) : budget_(std::move(budget)) {}
    Share(const Share&) = delete;
    ~Share() { budget_->give(bytes_); }
    /// False: the budget has no room for `bytes` more. A sole holder always has room.
    bool grow(std::size_t bytes) {
      if (!budget_->take(bytes, bytes_)) return false;
      bytes_ += bytes;
      return true;
    }

   private:
    const std::shared_ptr<ByteBudget> budget_;
    std::size_t bytes_ = 0;
  };

  std::size_t taken() const {
    MutexLock lock(mutex_);
    return taken_;
  }

 private:
  bool take(std::size_t bytes, std::size_t own) {
    MutexLock lock(mutex_);
    if (taken_ > own && (taken_ >= max_ || bytes > max_ - taken_)) return false;
    taken_ += bytes;
    return true;
  }
  void give(std::size_t bytes) {
    MutexLock lock(mutex_);
    taken_ -= bytes;
  }

  const std::size_t max_;
  mutable Mutex mutex_;
  std::size_t taken_ GUARDED_BY(mutex_) = 0;
};

}  // namespace varda::serving::joint
