// Statistics: what a cascade counts over the life of its process, and what it tells of it (design 017).
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
#include "cascade/machine.h"
#include "cascade/reason.h"
#include "codec/json.h"

namespace varda::cascade {

/// The latencies of the last 1,024 to 2,048 calls in buckets an eighth of an octave wide: a quantile is within 7 % of the true one.
/// By calls, not by time, so that nothing changes at rest. Thread-safe, without locks.
class LatencyWindow {
 public:
  void record(Duration latency);
  /// `share` in (0, 1]; nothing before the first call.
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

/// Of one tier, by its name. Thread-safe, without locks.
struct TierCounters {
  std::atomic<std::uint64_t> answered{0};
  std::atomic<std::uint64_t> asked{0};  // requests, not attempts; of tiers above the first
  std::atomic<std::uint64_t> retries{0};
  std::array<std::atomic<std::uint64_t>, kReasons> reasons{};  // of requests that it has no answer for
  LatencyWindow latencies;
};

/// One object a model, for the life of the process: configurations come and go. Thread-safe; count() takes no lock.
class Statistics {
 public:
  /// The counters of tiers called so; the object lives as long as somebody holds it. At most kNamesMax names are told apart, those
  /// that come later share one.
  std::shared_ptr<TierCounters> tier(std::string_view name);
  static constexpr std::size_t kNamesMax = 64;

  /// Of a request's size.
  struct Size {
    std::uint32_t samples = 1;
    std::uint64_t bytes_up = 0;  // of bodies, each attempt by itself
  };
  /// Once a request, after its end. `tiers` are the route's, in its order. A request whose client is gone counts what it asked.
  void count(const Summary& summary, const Size& size, std::span<const std::shared_ptr<TierCounters>> tiers);

  struct TierCounts {
    std::string name;
    std::uint64_t answered = 0;
    std::uint64_t asked = 0;
    std::uint64_t retries = 0;
    std::array<std::uint64_t, kReasons> reasons{};
    std::optional<std::chrono::microseconds> p50, p99;
  };
  struct Counts {
    std::uint64_t inferences = 0;       // requests that a tier answered
    std::uint64_t hard = 0;             // of these, hard by a policy
    std::uint64_t samples = 0;          // of these
    std::uint64_t samples_invalid = 0;  // whose values made no sense
    std::uint64_t bytes_up = 0;
    std::uint64_t up = 0;           // of `inferences`, those that asked a tier above the first, or several: once each
    std::vector<TierCounts> tiers;  // every name there ever was, in order of names
  };
  Counts counts() const;

 private:
  std::atomic<std::uint64_t> inferences_{0}, hard_{0}, samples_{0}, samples_invalid_{0}, bytes_up_{0}, up_{0};
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<TierCounters>, std::less<>> tiers_ GUARDED_BY(mutex_);
};

/// The member `counters` of GET /v2/models/MODEL/cascade.
codec::Json counters_json(const Statistics::Counts& counts);

struct Degraded {
  std::string reason;   // "BreakerOpen", "NoAddress"
  std::string message;  // "cloud: Unreachable: connection refused"
  WallTime since;
};
/// Set while a tier above the first is not asked: of several the highest is told. `configured` is since when the route is in force.
std::optional<Degraded> degraded(const Route& route, SteadyTime configured, SteadyTime now, WallTime wall);

/// The member `tiers`. The first tier's version is told by the caller; it is Ready.
codec::Json tiers_json(const Route& route, const Statistics::Counts& counts, std::string_view first_version);
/// The member `degraded`.
codec::Json to_json(const Degraded& degraded);

}  // namespace varda::cascade
