#include "tiers/tier_gate.h"

namespace varda::tiers {

bool InFlight::enter(std::size_t bytes) {
  std::size_t sum = bytes_.load(std::memory_order_relaxed);
  do {
    if (sum > 0 && bytes > 0 && (sum >= bytes_max_ || bytes > bytes_max_ - sum)) return false;
  } while (!bytes_.compare_exchange_weak(sum, sum + bytes, std::memory_order_acq_rel));
  std::uint32_t now = now_.load(std::memory_order_relaxed);
  do {
    if (now >= max_.load(std::memory_order_relaxed)) {
      bytes_.fetch_sub(bytes, std::memory_order_acq_rel);
      return false;
    }
  } while (!now_.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel));
  return true;
}

void InFlight::leave(std::size_t bytes) {
  now_.fetch_sub(1, std::memory_order_acq_rel);
  bytes_.fetch_sub(bytes, std::memory_order_acq_rel);
}

std::optional<Breaker::Ticket> TierGate::admit(SteadyTime now) {
  MutexLock lock(mutex_);
  return breaker_.admit(now);
}

void TierGate::succeeded(const Breaker::Ticket& ticket, SteadyTime now) {
  MutexLock lock(mutex_);
  seen_ = true;
  last_error_.reset();
  breaker_.finished(ticket, Breaker::Outcome::kSuccess, Breaker::Evidence::kRequest, now);
}

void TierGate::failed(const Breaker::Ticket& ticket, const Failure& failure, SteadyTime now) {
  MutexLock lock(mutex_);
  // A refusal is the client's fault, but shows that the tier answers.
  const bool refused = failure.reason == Reason::kRefused;
  if (refused && !failure.tier_at_fault) seen_ = true;
  if (refused || failure.tier_at_fault) last_error_ = failure;
  const auto outcome =
      failure.tier_at_fault ? Breaker::Outcome::kFailure : Breaker::Outcome::kNothing;
  breaker_.finished(ticket, outcome, Breaker::Evidence::kRequest, now);
}

void TierGate::abandoned(const Breaker::Ticket& ticket, SteadyTime now) {
  MutexLock lock(mutex_);
  breaker_.finished(ticket, Breaker::Outcome::kNothing, Breaker::Evidence::kRequest, now);
}

void TierGate::suspected(const Breaker::Ticket& ticket, SteadyTime now) {
  MutexLock lock(mutex_);
  breaker_.finished(ticket, Breaker::Outcome::kSuspicion, Breaker::Evidence::kRequest, now);
}

std::optional<Breaker::Ticket> TierGate::probe(SteadyTime now) {
  MutexLock lock(mutex_);
  return breaker_.probe(now);
}

void TierGate::probed(const Breaker::Ticket& ticket, const std::optional<Failure>& failure,
                      SteadyTime now) {
  MutexLock lock(mutex_);
  if (!failure) seen_ = true;
  const bool closed = breaker_.state() == Breaker::State::kClosed;
  breaker_.finished(ticket, failure ? Breaker::Outcome::kFailure : Breaker::Outcome::kSuccess,
                    Breaker::Evidence::kReadiness, now);
  if (failure) {
    last_error_ = failure;
  } else if (!closed && breaker_.state() == Breaker::State::kClosed) {
    last_error_.reset();
  }
}

void TierGate::set_version(std::string version) {
  MutexLock lock(mutex_);
  version_ = std::move(version);
}

TierGate::Health TierGate::health() const {
  MutexLock lock(mutex_);
  return {.state = breaker_.state(),
          .seen = seen_,
          .unavailable_since = breaker_.unavailable_since(),
          .version = version_,
          .last_error = last_error_};
}

std::variant<Permit, Reason> Permit::acquire(TierGate& gate, InFlight& in_flight, SteadyTime now,
                                             std::size_t bytes) {
  // The place first: a pause admits one probe, which a request without a place must not use up.
  if (!in_flight.enter(bytes)) return Reason::kInFlightLimit;
  const auto ticket = gate.admit(now);
  if (!ticket) {
    in_flight.leave(bytes);
    return Reason::kBreakerOpen;
  }
  return Permit(gate, in_flight, *ticket, now, bytes);
}

Permit::Permit(Permit&& other) noexcept
    : gate_(std::exchange(other.gate_, nullptr)),
      in_flight_(other.in_flight_),
      ticket_(other.ticket_),
      latest_(other.latest_),
      bytes_(other.bytes_) {}

Permit& Permit::operator=(Permit&& other) noexcept {
  if (this == &other) return *this;
  release();
  gate_ = std::exchange(other.gate_, nullptr);
  in_flight_ = other.in_flight_;
  ticket_ = other.ticket_;
  latest_ = other.latest_;
  bytes_ = other.bytes_;
  return *this;
}

void Permit::succeeded(SteadyTime now) {
  if (gate_ == nullptr) return;
  gate_->succeeded(ticket_, now);
  leave();
}

void Permit::failed(const Failure& failure, SteadyTime now) {
  if (gate_ == nullptr) return;
  gate_->failed(ticket_, failure, now);
  leave();
}

void Permit::suspected(SteadyTime now) {
  if (gate_ == nullptr) return;
  gate_->suspected(ticket_, now);
  leave();
}

void Permit::release() {
  if (gate_ == nullptr) return;
  gate_->abandoned(ticket_, latest_);
  leave();
}

void Permit::leave() {
  in_flight_->leave(bytes_);
  gate_ = nullptr;
}

}  // namespace varda::tiers
