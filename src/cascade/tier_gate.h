// TierGate: what all requests know of one tier together; InFlight: how many of them are on their way up.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "cascade/breaker.h"
#include "cascade/reason.h"

namespace varda::cascade {

/// Bounds the requests that wait for upper tiers at a time, by their number and by the bytes of their bodies. Thread-safe.
class InFlight {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{64} << 20;

  explicit InFlight(std::uint32_t max, std::size_t bytes_max = kBytesMax) : max_(max), bytes_max_(bytes_max) {}
  /// A body may always go up alone, however large.
  bool enter(std::size_t bytes);
  void leave(std::size_t bytes);
  /// Those beyond a smaller bound end by themselves.
  void set_max(std::uint32_t max) { max_.store(max, std::memory_order_relaxed); }
  std::uint32_t now() const { return now_.load(std::memory_order_relaxed); }
  std::size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> max_;
  std::atomic<std::uint32_t> now_{0};
  const std::size_t bytes_max_;
  std::atomic<std::size_t> bytes_{0};
};

/// Thread-safe. Belongs to a name and a URL: what is known of one says nothing about another.
class TierGate {
 public:
  /// `rng` outlives it.
  TierGate(Breaker::Options options, Rng& rng) : breaker_(options, rng) {}

  std::optional<Breaker::Ticket> admit(SteadyTime now);
  void succeeded(const Breaker::Ticket& ticket, SteadyTime now);
  void failed(const Breaker::Ticket& ticket, const Failure& failure, SteadyTime now);
  void abandoned(const Breaker::Ticket& ticket, SteadyTime now);
  /// No answer in a time that may have been too short for one.
  void suspected(const Breaker::Ticket& ticket, SteadyTime now);

  /// For a background question for readiness (GET /v2/models/MODEL/ready): set if one should be asked now. The ticket goes back
  /// through probed() in any case. Whatever is no success is a failure here, a 404 too: the model is not ready.
  std::optional<Breaker::Ticket> probe(SteadyTime now);
  void probed(const Breaker::Ticket& ticket, const std::optional<Failure>& failure, SteadyTime now);

  /// Which version of the model answered, for health().
  void set_version(std::string version);

  struct Health {
    Breaker::State state = Breaker::State::kClosed;
    bool seen = false;                            // it has answered a request or a readiness question
    std::optional<SteadyTime> unavailable_since;  // the breaker is not closed
    std::string version;                          // "" unknown
    std::optional<Failure> last_error;            // until a request succeeds, or a probe that ends a pause
  };
  Health health() const;

 private:
  mutable Mutex mutex_;
  Breaker breaker_ GUARDED_BY(mutex_);
  bool seen_ GUARDED_BY(mutex_) = false;
  std::string version_ GUARDED_BY(mutex_);
  std::optional<Failure> last_error_ GUARDED_BY(mutex_);
};

/// The right to one call of a tier: a ticket of its breaker and a place in flight. Given back exactly once: by an outcome, or, as a
/// call that says nothing, by destruction. Movable; gate and bound outlive it.
class Permit {
 public:
  /// kBreakerOpen or kInFlightLimit where there is none. `bytes` are those of the request's body.
  static std::variant<Permit, Reason> ask(TierGate& gate, InFlight& in_flight, SteadyTime now, std::size_t bytes = 0);
  Permit(Permit&& other) noexcept;
  Permit& operator=(Permit&& other) noexcept;
  ~Permit() { release(); }

  void succeeded(SteadyTime now);
  void failed(const Failure& failure, SteadyTime now);
  void suspected(SteadyTime now);

 private:
  Permit(TierGate& gate, InFlight& in_flight, Breaker::Ticket ticket, SteadyTime now, std::size_t bytes)
      : gate_(&gate), in_flight_(&in_flight), ticket_(ticket), latest_(now), bytes_(bytes) {}
  void release();
  void leave();

  TierGate* gate_;  // null: given back
  InFlight* in_flight_;
  Breaker::Ticket ticket_;
  SteadyTime latest_;  // that it was told of, for what is abandoned without a time
  std::size_t bytes_;
};

}  // namespace varda::cascade
