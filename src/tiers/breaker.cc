#include "tiers/breaker.h"

#include <algorithm>

#include "base/check.h"

namespace varda::tiers {

Breaker::Breaker(Options options, Rng& rng) : options_(options), rng_(rng) {
  CHECK(options.failures_max > 0 && options.window >= std::chrono::milliseconds(kSlices));
}

std::optional<Breaker::Ticket> Breaker::admit(SteadyTime now) {
  if (state_ == State::kClosed) return Ticket{generation_, false};
  if (probing_ || now < pause_until_) return std::nullopt;
  state_ = State::kHalfOpen;
  probing_ = true;
  return Ticket{generation_, true};
}

std::optional<Breaker::Ticket> Breaker::probe(SteadyTime now) {
  if (state_ != State::kClosed) return admit(now);
  if (probing_ || !suspect_ || (last_outcome_ && now < *last_outcome_ + options_.suspicion))
    return std::nullopt;
  probing_ = true;
  return Ticket{generation_, true};
}

void Breaker::finished(const Ticket& ticket, Outcome outcome, Evidence evidence, SteadyTime now) {
  // A call from before the last opening or closing is outdated evidence.
  if (ticket.generation != generation_) return;
  if (ticket.probe) probing_ = false;
  if (outcome == Outcome::kNothing || outcome == Outcome::kSuspicion) {
    if (state_ == State::kHalfOpen)
      state_ = State::kOpen;  // pause over: the next call is the probe
    // Only the first suspicion sets the time of the check; later ones do not postpone it.
    if (outcome == Outcome::kSuspicion && state_ == State::kClosed && !suspect_) {
      suspect_ = true;
      last_outcome_ = last_outcome_ ? std::max(*last_outcome_, now) : now;
    }
    return;
  }
  last_outcome_ = last_outcome_ ? std::max(*last_outcome_, now) : now;
  suspect_ = outcome == Outcome::kFailure;
  if (state_ != State::kClosed) {
    if (outcome == Outcome::kSuccess) return close(now, evidence);
    return open(now);
  }
  if (evidence == Evidence::kRequest) count(now, outcome == Outcome::kFailure);
  if (outcome == Outcome::kFailure) {
    ++failures_;
    if (failures_ >= options_.failures_max || rate_is_too_high(now)) open(now);
    return;
  }
  // A ready tier may still fail requests: readiness does not cancel out a failed request.
  if (evidence == Evidence::kReadiness) return;
  failures_ = 0;
  if (level_ > 0 && now >= since_ + pause_) level_ = 0;
}

std::optional<SteadyTime> Breaker::unavailable_since() const {
  if (state_ == State::kClosed) return std::nullopt;
  return since_;
}

void Breaker::open(SteadyTime now) {
  if (state_ == State::kClosed) since_ = now;
  state_ = State::kOpen;
  ++generation_;
  probing_ = false;
  Duration pause = options_.pause_min;
  for (unsigned i = 0; i < level_ && pause < options_.pause_max; ++i) pause *= 2;
  pause = std::min<Duration>(pause, options_.pause_max);
  if (pause < options_.pause_max) ++level_;
  const double factor = 1 + options_.jitter * (2 * rng_.unit() - 1);
  pause_ = std::chrono::duration_cast<Duration>(pause * factor);
  pause_until_ = now + pause_;
}

void Breaker::close(SteadyTime now, Evidence evidence) {
  state_ = State::kClosed;
  ++generation_;
  since_ = now;
  // Closed on trust: the next failed request opens it again.
  failures_ = evidence == Evidence::kReadiness ? options_.failures_max - 1 : 0;
  slices_ = {};
}

void Breaker::count(SteadyTime now, bool failure) {
  const std::int64_t number = now.time_since_epoch() / (options_.window / kSlices);
  Slice& slice = slices_[static_cast<std::size_t>(number) % kSlices];
  if (slice.number < number) slice = {.number = number};
  ++slice.calls;
  slice.failures += failure ? 1 : 0;
}

bool Breaker::rate_is_too_high(SteadyTime now) const {
  const std::int64_t number = now.time_since_epoch() / (options_.window / kSlices);
  std::uint32_t calls = 0;
  std::uint32_t failures = 0;
  for (const Slice& slice : slices_) {
    if (slice.number <= number - static_cast<std::int64_t>(kSlices)) continue;
    calls += slice.calls;
    failures += slice.failures;
  }
  return calls >= options_.window_calls_min && failures >= options_.failure_rate * calls;
}

}  // namespace varda::tiers
