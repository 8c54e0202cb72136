// Breaker: when to stop asking a tier that fails, and when to try again.
//
//   closed ── failures ──> open ── pause over: one probe ──> half-open ── it fails: longer pause ──> open
//     ^                                                         │
//     └────────────────────── it succeeds ──────────────────────┘
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/rng.h"

namespace varda::cascade {

/// Pure, not thread-safe: TierGate locks. Times may come a little out of order, as those of several threads do.
class Breaker {
 public:
  struct Options {
    unsigned failures_max = 5;       // in a row, that open it
    double failure_rate = 0.5;       // of the calls in the window, that opens it
    unsigned window_calls_min = 20;  // below so many calls a rate says nothing
    std::chrono::milliseconds window{10000};
    std::chrono::milliseconds pause_min{1000};  // after the first opening; doubled by each one that follows a failed probe
    std::chrono::milliseconds pause_max{30000};
    double jitter = 0.2;                        // a pause lasts 1 - jitter to 1 + jitter of it
    std::chrono::milliseconds suspicion{1000};  // after a failure while closed, without calls since: a probe is wanted
  };
  enum class State : std::uint8_t { kClosed, kOpen, kHalfOpen };

  /// Of a call or probe that was let through. Each is given back once, through finished().
  struct Ticket {
    std::uint64_t generation = 0;
    bool probe = false;
  };
  enum class Outcome : std::uint8_t {
    kSuccess,
    kFailure,
    kNothing,    // cancelled, or its own fault: says nothing about the tier
    kSuspicion,  // no answer, and little time for one: no failure, but somebody should ask whether it is ready
  };
  /// Whose outcome: an answer to a request says more than one to a question for readiness.
  enum class Evidence : std::uint8_t { kRequest, kReadiness };

  /// `rng` outlives it.
  Breaker(Options options, Rng& rng);

  /// Whether a request may be sent; it may be the probe.
  std::optional<Ticket> admit(SteadyTime now);
  /// Whether somebody should ask the tier whether it is ready, now: nothing is known of it yet, its pause is over, it failed last
  /// and is not asked any more, or there is a suspicion. At rest nobody should.
  std::optional<Ticket> probe(SteadyTime now);
  void finished(const Ticket& ticket, Outcome outcome, Evidence evidence, SteadyTime now);

  State state() const { return state_; }
  /// When it opened first since it was closed; nothing while closed.
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
  std::uint64_t generation_ = 0;  // of tickets; outcomes of earlier ones say nothing about now
  unsigned failures_ = 0;         // in a row
  unsigned level_ = 0;            // of the next pause
  Duration pause_{};              // the last one
  SteadyTime pause_until_{};
  SteadyTime since_{};  // not closed since, or closed since
  std::optional<SteadyTime> last_outcome_;
  bool probing_ = false;
  bool suspect_ = true;  // it failed last, or nobody knows yet: a question for readiness is due
  std::array<Slice, kSlices> slices_;
};

}  // namespace varda::cascade
