#include "tiers/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <ctime>

namespace varda::tiers {

using codec::Json;

// Values below 8 µs have a bucket each; above, every power of two is cut into eight.
std::size_t LatencyWindow::bucket(Duration latency) {
  const auto us = static_cast<std::uint64_t>(std::max<std::int64_t>(
      0, std::chrono::duration_cast<std::chrono::microseconds>(latency).count()));
  if (us < 8) return us;
  const auto octave = static_cast<std::size_t>(std::bit_width(us)) - 4;  // 0 for 8 to 15
  return std::min(kBuckets - 1, 8 * (octave + 1) + (us >> octave) - 8);
}

void LatencyWindow::record(Duration latency) {
  const std::uint32_t current = current_.load(std::memory_order_acquire);
  Generation& generation = generations_[current % 2];
  generation.buckets[bucket(latency)].fetch_add(1, std::memory_order_relaxed);
  if (generation.calls.fetch_add(1, std::memory_order_acq_rel) + 1 != kGenerationCalls) return;
  // Exactly one call fills a generation and starts the next. Concurrent updates of the new
  // generation may get lost, which is acceptable.
  Generation& other = generations_[(current + 1) % 2];
  for (auto& count : other.buckets) count.store(0, std::memory_order_relaxed);
  other.calls.store(0, std::memory_order_relaxed);
  current_.store(current + 1, std::memory_order_release);
}

std::optional<std::chrono::microseconds> LatencyWindow::quantile(double share) const {
  std::array<std::uint64_t, kBuckets> counts{};
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    for (const Generation& generation : generations_)
      counts[i] += generation.buckets[i].load(std::memory_order_relaxed);
    all += counts[i];
  }
  if (all == 0) return std::nullopt;
  const auto rank = std::max<std::uint64_t>(
      1, static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(all))));
  std::size_t at = 0;
  for (std::uint64_t seen = counts[0]; seen < rank && at + 1 < kBuckets; seen += counts[at]) ++at;
  if (at < 16) return std::chrono::microseconds(at);
  const std::size_t octave = at / 8 - 1;
  const std::uint64_t low = (at % 8 + 8) << octave;
  return std::chrono::microseconds(low +
                                   (std::uint64_t{1} << octave) / 2);  // the middle of the bucket
}

std::shared_ptr<TierCounters> Statistics::tier(std::string_view name) {
  MutexLock lock(mutex_);
  if (const auto found = tiers_.find(name); found != tiers_.end()) return found->second;
  const std::string known(tiers_.size() < kNamesMax ? name : "others");
  auto& counters = tiers_[known];
  if (counters == nullptr) counters = std::make_shared<TierCounters>();
  return counters;
}

void Statistics::count(const Summary& summary, const Size& size,
                       std::span<const std::shared_ptr<TierCounters>> tiers) {
  const auto add = [](std::atomic<std::uint64_t>& counter, std::uint64_t amount) {
    if (amount > 0) counter.fetch_add(amount, std::memory_order_relaxed);
  };
  add(bytes_sent_, size.bytes_sent);
  for (std::size_t i = 0; i < std::min<std::size_t>(summary.tier_count, tiers.size()); ++i) {
    const Summary::Tier& tier = summary.tiers[i];
    TierCounters& counters = *tiers[i];
    if (i > 0 && tier.called) add(counters.called, 1);
    if (tier.attempts > 1) add(counters.retries, tier.attempts - 1U);
    if (tier.reason) add(counters.reasons[static_cast<std::size_t>(*tier.reason)], 1);
    if (tier.answered) counters.latencies.record(tier.latency);
  }
  if (summary.end != Summary::End::kAnswered) return;
  const auto tiers_end = summary.tiers.begin() + summary.tier_count;
  add(forwarded_,
      std::any_of(summary.tiers.begin() + 1, std::max(summary.tiers.begin() + 1, tiers_end),
                  [](const Summary::Tier& tier) { return tier.called; })
          ? 1
          : 0);
  add(inferences_, 1);
  add(hard_, summary.hard ? 1 : 0);
  add(samples_, size.samples);
  add(samples_invalid_, summary.samples_invalid);
  if (summary.tier < tiers.size()) add(tiers[summary.tier]->answered, 1);
}

Statistics::Counts Statistics::counts() const {
  Counts out{.inferences = inferences_.load(std::memory_order_relaxed),
             .hard = hard_.load(std::memory_order_relaxed),
             .samples = samples_.load(std::memory_order_relaxed),
             .samples_invalid = samples_invalid_.load(std::memory_order_relaxed),
             .bytes_sent = bytes_sent_.load(std::memory_order_relaxed),
             .forwarded = forwarded_.load(std::memory_order_relaxed)};
  MutexLock lock(mutex_);
  for (const auto& [name, counters] : tiers_) {
    TierCounts tier{.name = name,
                    .answered = counters->answered.load(std::memory_order_relaxed),
                    .called = counters->called.load(std::memory_order_relaxed),
                    .retries = counters->retries.load(std::memory_order_relaxed)};
    for (std::size_t i = 0; i < kReasons; ++i)
      tier.reasons[i] = counters->reasons[i].load(std::memory_order_relaxed);
    tier.p50 = counters->latencies.quantile(0.5);
    tier.p99 = counters->latencies.quantile(0.99);
    out.tiers.push_back(std::move(tier));
  }
  return out;
}

Json counters_json(const Statistics::Counts& counts) {
  Json answered = Json::object();
  Json called = Json::object();
  Json errors = Json::object();
  Json retries = Json::object();
  Json not_called = Json::object();
  for (const Statistics::TierCounts& tier : counts.tiers) {
    Json failed = Json::object();
    Json refrained = Json::object();
    for (const Reason reason : kAllReasons) {
      const std::uint64_t count = tier.reasons[static_cast<std::size_t>(reason)];
      if (count > 0) (is_error(reason) ? failed : refrained).set(to_string(reason), count);
    }
    answered.set(tier.name, tier.answered);
    if (tier.called > 0) called.set(tier.name, tier.called);
    if (tier.retries > 0) retries.set(tier.name, tier.retries);
    if (!failed.empty()) errors.set(tier.name, std::move(failed));
    if (!refrained.empty()) not_called.set(tier.name, std::move(refrained));
  }
  return Json::object({{"inferences", counts.inferences},
                       {"hard", counts.hard},
                       {"invalid", counts.samples_invalid},
                       {"samples", counts.samples},
                       {"bytesSent", counts.bytes_sent},
                       {"forwarded", counts.forwarded},
                       {"answered", std::move(answered)},
                       {"called", std::move(called)},
                       {"errors", std::move(errors)},
                       {"retries", std::move(retries)},
                       {"notCalled", std::move(not_called)}});
}

namespace {

std::string reported(const Failure& failure) {
  const std::string reason(to_string(failure.reason));
  return failure.message.empty() ? reason : reason + ": " + failure.message;
}

std::string_view state_of(const Route::Tier& tier) {
  if (tier.gate == nullptr) return "Unknown";
  const TierGate::Health health = tier.gate->health();
  switch (health.state) {
    case Breaker::State::kOpen:
      return "Open";
    case Breaker::State::kHalfOpen:
      return "HalfOpen";
    case Breaker::State::kClosed:
      break;
  }
  return health.seen ? "Ready" : "Unknown";
}

// RFC 3339 with seconds, as in the API.
std::string timestamp(WallTime time) {
  const std::time_t seconds =
      std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(time));
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), length};
}

}  // namespace

std::optional<Degraded> degraded(const Route& route, SteadyTime configured, SteadyTime now,
                                 WallTime wall) {
  std::optional<Degraded> out;
  SteadyTime since = now;
  for (std::size_t i = 1; i < route.tiers.size(); ++i) {
    const Route::Tier& tier = route.tiers[i];
    if (tier.gate == nullptr) {
      out = Degraded{.reason = std::string(to_string(Reason::kNoAddress)),
                     .message = tier.name + ": its address is not known yet"};
      since = std::min(since, configured);
      continue;
    }
    const TierGate::Health health = tier.gate->health();
    if (!health.unavailable_since) continue;
    out = Degraded{.reason = std::string(to_string(Reason::kBreakerOpen)),
                   .message = tier.name + ": " +
                              (health.last_error ? reported(*health.last_error) : "it failed")};
    since = std::min(since, *health.unavailable_since);
  }
  if (out) out->since = wall - std::chrono::duration_cast<WallTime::duration>(now - since);
  return out;
}

Json tiers_json(const Route& route, const Statistics::Counts& counts,
                std::string_view first_version) {
  Json out = Json::array();
  for (std::size_t i = 0; i < route.tiers.size(); ++i) {
    const Route::Tier& tier = route.tiers[i];
    Json item = Json::object({{"name", tier.name}, {"state", i == 0 ? "Ready" : state_of(tier)}});
    const TierGate::Health health = tier.gate == nullptr ? TierGate::Health{} : tier.gate->health();
    if (const std::string version = i == 0 ? std::string(first_version) : health.version;
        !version.empty())
      item.set("version", version);
    const auto same = [&](const Statistics::TierCounts& counted) {
      return counted.name == tier.name;
    };
    if (const auto found = std::find_if(counts.tiers.begin(), counts.tiers.end(), same);
        found != counts.tiers.end()) {
      if (found->p50) item.set("p50Us", std::int64_t{found->p50->count()});
      if (found->p99) item.set("p99Us", std::int64_t{found->p99->count()});
    }
    if (health.last_error) item.set("lastError", reported(*health.last_error));
    out.push_back(std::move(item));
  }
  return out;
}

Json to_json(const Degraded& degraded) {
  return Json::object({{"reason", degraded.reason},
                       {"message", degraded.message},
                       {"since", timestamp(degraded.since)}});
}

}  // namespace varda::tiers
