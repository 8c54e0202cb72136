// TierGate: state of one tier, shared by all requests. InFlight: limit on concurrent upstream
// requests.
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
#include "tiers/breaker.h"
#include "tiers/reason.h"

namespace varda::tiers {

/// Limits the concurrent requests to later tiers, by number and by body bytes. Thread-safe.
class InFlight {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{64} << 20;

  explicit InFlight(std::uint32_t max, std::size_t bytes_max = kBytesMax)
      : max_(max), bytes_max_(bytes_max) {}
  /// False: no room. A body of any size may be in flight alone.
  bool enter(std::size_t bytes);
  void leave(std::size_t bytes);
  /// With a smaller limit, the surplus requests still finish.
  void set_max(std::uint32_t max) { max_.store(max, std::memory_order_relaxed); }
  std::uint32_t now() const { return now_.load(std::memory_order_relaxed); }
  std::size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> max_;
  std::atomic<std::uint32_t> now_{0};
  const std::size_t bytes_max_;
  std::atomic<std::size_t> bytes_{0};
};

/// Thread-safe. One gate per name and URL, since knowledge about one address means nothing for
/// another.
class TierGate {
 public:
  /// `rng` outlives the gate.
  TierGate(Breaker::Options options, Rng& rng) : breaker_(options, rng) {}

  std::optional<Breaker::Ticket> admit(SteadyTime now);
  void succeeded(const Breaker::Ticket& ticket, SteadyTime now);
  void failed(const Breaker::Ticket& ticket, const Failure& failure, SteadyTime now);
  void abandoned(const Breaker::Ticket& ticket, SteadyTime now);
  /// No answer, but the time may have been too short for one.
  void suspected(const Breaker::Ticket& ticket, SteadyTime now);

  /// Set if a readiness check (GET /v2/models/MODEL/ready) is due now. The caller returns the
  /// ticket through probed() in any case. Here everything but a success is a failure, including
  /// 404: the model is not ready.
  std::optional<Breaker::Ticket> probe(SteadyTime now);
  void probed(const Breaker::Ticket& ticket, const std::optional<Failure>& failure, SteadyTime now);

  /// The version of the model that answered, for health().
  void set_version(std::string version);

  struct Health {
    Breaker::State state = Breaker::State::kClosed;
    bool seen = false;                            // has answered a request or a readiness check
    std::optional<SteadyTime> unavailable_since;  // the breaker is not closed
    std::string version;                          // "" unknown
    std::optional<Failure> last_error;  // until a request succeeds, or a probe that ends a pause
  };
  Health health() const;

 private:
  mutable Mutex mutex_;
  Breaker breaker_ GUARDED_BY(mutex_);
  bool seen_ GUARDED_BY(mutex_) = false;
  std::string version_ GUARDED_BY(mutex_);
  std::optional<Failure> last_error_ GUARDED_BY(mutex_);
};

/// The permission for one call of a tier: a ticket of the breaker and a place in flight. Returned
/// exactly once: by an outcome, or by the destructor, without evidence about the tier. Movable;
/// gate and limit outlive the permit.
class Permit {
 public:
  /// kBreakerOpen or kInFlightLimit on refusal. `bytes` is the size of the request's body.
  static std::variant<Permit, Reason> acquire(TierGate& gate, InFlight& in_flight, SteadyTime now,
                                              std::size_t bytes = 0);
  Permit(Permit&& other) noexcept;
  Permit& operator=(Permit&& other) noexcept;
  ~Permit() { release(); }

  void succeeded(SteadyTime now);
  void failed(const Failure& failure, SteadyTime now);
  void suspected(SteadyTime now);

 private:
  Permit(TierGate& gate, InFlight& in_flight, Breaker::Ticket ticket, SteadyTime now,
         std::size_t bytes)
      : gate_(&gate), in_flight_(&in_flight), ticket_(ticket), latest_(now), bytes_(bytes) {}
  void release();
  void leave();

  TierGate* gate_;  // null: returned
  InFlight* in_flight_;
  Breaker::Ticket ticket_;
  SteadyTime latest_;  // latest known time, for a destructor without a clock
  std::size_t bytes_;
};

}  // namespace varda::tiers
