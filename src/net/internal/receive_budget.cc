#include "net/internal/receive_budget.h"

#include <algorithm>
#include <utility>

namespace varda::net::internal {

std::shared_ptr<ReceiveBudget::Ticket> ReceiveBudget::request(std::size_t bytes,
                                                              std::function<void()> wake) {
  auto ticket = std::make_shared<Ticket>(shared_from_this(), bytes, std::move(wake));
  const MutexLock lock(mutex_);
  if (waiting_.empty() && bytes <= left_) {
    left_ -= bytes;
    ticket->granted_ = true;
  } else {
    waiting_.push_back(ticket.get());
  }
  return ticket;
}

void ReceiveBudget::release(Ticket& ticket) {
  const MutexLock lock(mutex_);
  if (ticket.granted_) {
    left_ += ticket.bytes_;
  } else {
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &ticket));
  }
  grant();
}

void ReceiveBudget::grant() {
  while (!waiting_.empty() && waiting_.front()->bytes_ <= left_) {
    Ticket& next = *waiting_.front();
    waiting_.pop_front();
    left_ -= next.bytes_;
    next.granted_ = true;
    next.wake_();
  }
}

}  // namespace varda::net::internal
