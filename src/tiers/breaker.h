// Breaker: stops requests to a failing tier and decides when to try again.
//
//   closed ── failures ──> open ── pause over: probe ──> half-open ── fails: longer pause ──> open
//     ^                                                      │
//     └────────────────────── succeeds ──────────────────────┘
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/rng.h"

namespace varda::tiers {

/// Pure, not thread-safe: TierGate locks. Times may be slightly out of order, as from several
/// threads.
class Breaker {
 public:
  struct Options {
    unsigned failures_max = 5;       // consecutive failures that open the breaker
    double failure_rate = 0.5;       // share of failed calls in the window that opens the breaker
    unsigned window_calls_min = 20;  // the rate is ignored below this number of calls
    std::chrono::milliseconds window{10000};
    std::chrono::milliseconds pause_min{1000};  // first pause; doubles after each failed probe
    std::chrono::milliseconds pause_max{30000};
    double jitter = 0.2;  // random factor of a pause: 1 - jitter to 1 + jitter
    std::chrono::milliseconds suspicion{
        1000};  // time from a failure to a probe, if no calls follow
  };
  enum class State : std::uint8_t { kClosed, kOpen, kHalfOpen };

  /// Stands for one admitted call or probe. The caller returns each ticket once, through
  /// finished().
  struct Ticket {
    std::uint64_t generation = 0;
    bool probe = false;
  };
  enum class Outcome : std::uint8_t {
    kSuccess,
    kFailure,
    kNothing,    // cancelled, or the request's own fault: no evidence about the tier
    kSuspicion,  // no answer, but the time was short: no failure, but a readiness check is due
  };
  /// The kind of call behind an outcome: an answered request is stronger evidence than a readiness
  /// check.
  enum class Evidence : std::uint8_t { kRequest, kReadiness };

  /// `rng` outlives the breaker.
  Breaker(Options options, Rng& rng);

  /// A ticket if a request may be sent; the request may be the probe.
  std::optional<Ticket> admit(SteadyTime now);
  /// A ticket if a readiness check is due now. It is due at the start, after a pause, after a last
  /// failure without later calls, or on suspicion. An idle healthy tier needs no check.
  std::optional<Ticket> probe(SteadyTime now);
  void finished(const Ticket& ticket, Outcome outcome, Evidence evidence, SteadyTime now);

  State state() const { return state_; }
  /// Time of the first opening since the breaker was last closed; empty while closed.
  std::optional<SteadyTime> unavailable_since() const;

 private:
  static constexpr unsigned kSlices = 10;
  struct Slice {
    std::int64_t number = -1;
    std::uint32_t calls = 0;
    std::uint32_t failures = 0;
  };
  void open(SteadyTime now);
  void close(SteadyTime now, Evidence evidence);
  void count(SteadyTime now, bool failure);
  bool rate_is_too_high(SteadyTime now) const;

  const Options options_;
  Rng& rng_;
  State state_ = State::kClosed;
  std::uint64_t generation_ = 0;  // of tickets; outcomes of older ones are ignored
  unsigned failures_ = 0;         // consecutive
  unsigned level_ = 0;            // exponent of the next pause
  Duration pause_{};              // the latest one
  SteadyTime pause_until_{};
  SteadyTime since_{};  // time of the first opening, or of the last closing
  std::optional<SteadyTime> last_outcome_;
  bool probing_ = false;
  bool suspect_ = true;  // the last call failed, or none was made yet: a readiness check is due
  std::array<Slice, kSlices> slices_;
};

}  // namespace varda::tiers
