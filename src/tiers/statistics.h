// Statistics: counters of joint inference over the life of the process, and their JSON (design
// 017).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "codec/json.h"
#include "tiers/machine.h"
#include "tiers/reason.h"

namespace varda::tiers {

/// Latencies of the last 1,024 to 2,048 calls, in buckets an eighth of an octave wide: quantiles
/// are accurate to 7 %. Old values expire by calls, not by time, so that an idle model's numbers
/// stay constant. Thread-safe, lock-free.
class LatencyWindow {
 public:
  void record(Duration latency);
  /// `share` in (0, 1]; empty before the first call.
  std::optional<std::chrono::microseconds> quantile(double share) const;

 private:
  static constexpr std::size_t kBuckets = 256;
  static constexpr std::uint32_t kGenerationCalls = 1024;
  struct Generation {
    std::array<std::atomic<std::uint32_t>, kBuckets> buckets{};
    std::atomic<std::uint32_t> calls{0};
  };
  static std::size_t bucket(Duration latency);

  std::array<Generation, 2> generations_;
  std::atomic<std::uint32_t> current_{0};
};

/// Counters of one tier, by name. Thread-safe, lock-free.
struct TierCounters {
  std::atomic<std::uint64_t> answered{0};
  std::atomic<std::uint64_t> called{0};  // requests, not attempts; for later tiers only
  std::atomic<std::uint64_t> retries{0};
  std::array<std::atomic<std::uint64_t>, kReasons>
      reasons{};  // of requests without an answer from this tier
  LatencyWindow latencies;
};

/// One object per model, for the life of the process, across configurations. Thread-safe; count()
/// takes no lock.
class Statistics {
 public:
  /// Counters for a tier name, kept as long as referenced. At most kNamesMax names are distinct;
  /// later names share one object.
  std::shared_ptr<TierCounters> tier(std::string_view name);
  static constexpr std::size_t kNamesMax = 64;

  /// Size of a request.
  struct Size {
    std::uint32_t samples = 1;
    std::uint64_t bytes_sent = 0;  // of bodies, once per attempt
  };
  /// Called once per request, after its end. `tiers` are in the order of the route. A request
  /// without an answer only adds to calls, reasons and bytes.
  void count(const Summary& summary, const Size& size,
             std::span<const std::shared_ptr<TierCounters>> tiers);

  struct TierCounts {
    std::string name;
    std::uint64_t answered = 0;
    std::uint64_t called = 0;
    std::uint64_t retries = 0;
    std::array<std::uint64_t, kReasons> reasons{};
    std::optional<std::chrono::microseconds> p50, p99;
  };
  struct Counts {
    std::uint64_t inferences = 0;       // requests that a tier answered
    std::uint64_t hard = 0;             // of `inferences`, hard by a policy
    std::uint64_t samples = 0;          // of `inferences`
    std::uint64_t samples_invalid = 0;  // samples with values that make no sense
    std::uint64_t bytes_sent = 0;
    std::uint64_t forwarded = 0;    // of `inferences`, those that called any later tier
    std::vector<TierCounts> tiers;  // every name so far, sorted
  };
  Counts counts() const;

 private:
  std::atomic<std::uint64_t> inferences_{0}, hard_{0}, samples_{0}, samples_invalid_{0},
      bytes_sent_{0}, forwarded_{0};
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<TierCounters>, std::less<>> tiers_ GUARDED_BY(mutex_);
};

/// The member `counters` of GET /v2/models/MODEL/joint.
codec::Json counters_json(const Statistics::Counts& counts);

struct Degraded {
  std::string reason;   // "BreakerOpen", "NoAddress"
  std::string message;  // "cloud: Unreachable: connection refused"
  WallTime since;
};
/// Set while a later tier is unavailable; names the highest one. `configured` is when the route
/// took effect.
std::optional<Degraded> degraded(const Route& route, SteadyTime configured, SteadyTime now,
                                 WallTime wall);

/// The member `tiers`. The caller provides the first tier's version; the first tier is Ready.
codec::Json tiers_json(const Route& route, const Statistics::Counts& counts,
                       std::string_view first_version);
/// The member `degraded`.
codec::Json to_json(const Degraded& degraded);

}  // namespace varda::tiers
