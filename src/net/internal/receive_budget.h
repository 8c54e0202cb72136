// Shares the memory for large messages among the calls of a gRPC server.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>

#include "base/mutex.h"

namespace varda::net::internal {

/// Grants sizes in the order of requests, so that a large message is not overtaken for ever. A
/// grant covers a whole message: two half-received messages never wait for each other. Thread-safe.
class ReceiveBudget : public std::enable_shared_from_this<ReceiveBudget> {
 public:
  /// Returns its bytes, or leaves the queue, when destroyed.
  class Ticket {
   public:
    Ticket(std::shared_ptr<ReceiveBudget> budget, std::size_t bytes, std::function<void()> wake)
        : budget_(std::move(budget)), bytes_(bytes), wake_(std::move(wake)) {}
    ~Ticket() { budget_->release(*this); }
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    bool granted() const {
      const MutexLock lock(budget_->mutex_);
      return granted_;
    }

   private:
    friend class ReceiveBudget;
    const std::shared_ptr<ReceiveBudget> budget_;
    const std::size_t bytes_;
    const std::function<void()> wake_;
    bool granted_ = false;  // guarded by the budget's mutex
  };

  explicit ReceiveBudget(std::size_t bytes) : left_(bytes) {}
  /// `bytes` is at most the budget. `wake` is called with the lock held when the ticket is granted
  /// later, so it may only post.
  std::shared_ptr<Ticket> request(std::size_t bytes, std::function<void()> wake) EXCLUDES(mutex_);

 private:
  void release(Ticket& ticket) EXCLUDES(mutex_);
  void grant() REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::size_t left_ GUARDED_BY(mutex_);
  std::deque<Ticket*> waiting_ GUARDED_BY(mutex_);
};

}  // namespace varda::net::internal
