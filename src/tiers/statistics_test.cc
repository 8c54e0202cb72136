#include "tiers/statistics.h"

#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <latch>
#include <thread>

namespace varda::tiers {
namespace {

using codec::Json;
using std::chrono::microseconds;

TEST(LatencyWindow, QuantilesAreWithin7Percent) {
  const auto rng = seeded_rng(5);
  for (const int scale : {20, 900, 70000, 5000000}) {
    LatencyWindow window;
    std::vector<int> all;
    for (int i = 0; i < 1000; ++i) {
      all.push_back(static_cast<int>(rng->below(static_cast<std::uint64_t>(scale))) + scale / 4);
      window.record(microseconds(all.back()));
    }
    std::sort(all.begin(), all.end());
    for (const double share : {0.5, 0.99}) {
      const double exact = all[static_cast<std::size_t>(share * 1000) - 1];
      EXPECT_NEAR(static_cast<double>(window.quantile(share)->count()), exact, exact * 0.065 + 0.5)
          << scale << " " << share;
    }
  }
}

TEST(LatencyWindow, SmallAndHugeLatenciesAreRecorded) {
  EXPECT_FALSE(LatencyWindow().quantile(0.5));
  const std::pair<Duration, Duration> cases[] = {
      {microseconds(0), microseconds(0)},
      {microseconds(-5), microseconds(0)},
      {microseconds(7), microseconds(7)},
      {microseconds(8), microseconds(8)},
      {microseconds(15), microseconds(15)},
      {microseconds(16), microseconds(17)},
      {std::chrono::seconds(1), microseconds(1015808)},
  };
  for (const auto& [latency, reported] : cases) {
    LatencyWindow window;
    window.record(latency);
    EXPECT_EQ(*window.quantile(0.5), reported);
    EXPECT_EQ(*window.quantile(0.99), reported);
  }
  LatencyWindow window;
  window.record(std::chrono::hours(100000));
  EXPECT_GT(*window.quantile(0.5), std::chrono::hours(1));
}

TEST(LatencyWindow, OldLatenciesLeaveTheWindow) {
  LatencyWindow window;
  for (int i = 0; i < 5000; ++i) window.record(std::chrono::seconds(1));
  for (int i = 0; i < 2048; ++i) window.record(microseconds(10));
  EXPECT_EQ(*window.quantile(0.99), microseconds(10));
}

/// A route of two tiers, and summaries of requests as the machine would produce them.
class StatisticsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    route.in_flight = std::make_shared<InFlight>(4);
    route.tiers.push_back({.name = "edge", .policy = {}, .gate = {}, .deadline = {}});
    route.tiers.push_back({.name = "cloud", .policy = {}, .gate = gate, .deadline = {}});
    for (const auto& tier : route.tiers) tiers.push_back(statistics.tier(tier.name));
  }
  static Summary answered(std::uint8_t tier) {
    Summary summary{.end = Summary::End::kAnswered, .tier = tier, .tier_count = 2};
    summary.tiers[0] = {
        .called = true, .answered = true, .attempts = 1, .reason = {}, .latency = microseconds(10)};
    if (tier == 1) {
      summary.hard = true;
      summary.tiers[1] = {.called = true,
                          .answered = true,
                          .attempts = 2,
                          .reason = {},
                          .latency = microseconds(14)};
    }
    return summary;
  }
  void fail(const Failure& failure) {
    const auto ticket = gate->admit(now);
    ASSERT_TRUE(ticket);
    gate->failed(*ticket, failure, now);
  }

  std::unique_ptr<Rng> rng = seeded_rng(1);
  std::shared_ptr<TierGate> gate =
      std::make_shared<TierGate>(Breaker::Options{.failures_max = 2}, *rng);
  Route route;
  Statistics statistics;
  std::vector<std::shared_ptr<TierCounters>> tiers;
  SteadyTime now{std::chrono::hours(10)};
  WallTime wall{std::chrono::seconds(1769860800)};  // 2026-01-31T12:00:00Z
};

TEST_F(StatisticsTest, EveryRequestIsCountedOnce) {
  for (int i = 0; i < 3; ++i) statistics.count(answered(0), {.samples = 2, .bytes_sent = 0}, tiers);
  statistics.count(answered(1), {.samples = 1, .bytes_sent = 200}, tiers);
  Summary fallen = answered(0);
  fallen.hard = true;
  fallen.samples_invalid = 1;
  fallen.tiers[1] = {
      .called = true, .answered = false, .attempts = 1, .reason = Reason::kTimeout, .latency = {}};
  statistics.count(fallen, {.samples = 1, .bytes_sent = 100}, tiers);
  fallen.tiers[1] = {.called = false,
                     .answered = false,
                     .attempts = 0,
                     .reason = Reason::kBreakerOpen,
                     .latency = {}};
  statistics.count(fallen, {.samples = 1, .bytes_sent = 0}, tiers);
  Summary disconnected = answered(1);
  disconnected.end = Summary::End::kDisconnected;
  disconnected.tiers[1].answered = false;
  statistics.count(disconnected, {.samples = 1, .bytes_sent = 50}, tiers);
  EXPECT_EQ(
      codec::write_json(counters_json(statistics.counts())),
      R"({"inferences":6,"hard":3,"invalid":2,"samples":9,"bytesSent":350,"forwarded":2,"answered":{"cloud":1,"edge":5},"called":{"cloud":3},)"
      R"("errors":{"cloud":{"Timeout":1}},"retries":{"cloud":2},"notCalled":{"cloud":{"BreakerOpen":1}}})");
  EXPECT_EQ(codec::write_json(tiers_json(route, statistics.counts(), "3")),
            R"([{"name":"edge","state":"Ready","version":"3","p50Us":10,"p99Us":10},)"
            R"({"name":"cloud","state":"Unknown","p50Us":14,"p99Us":14}])");
}

TEST_F(StatisticsTest, CountersOfRemovedTiersAreKept) {
  statistics.count(answered(1), {}, tiers);
  const std::vector<std::shared_ptr<TierCounters>> others{statistics.tier("device"),
                                                          statistics.tier("cloud")};
  statistics.count(answered(1), {}, others);
  const Json counters = counters_json(statistics.counts());
  EXPECT_EQ(counters["answered"], Json::object({{"cloud", 2}, {"device", 0}, {"edge", 0}}));
}

TEST_F(StatisticsTest, NumberOfTierNamesIsBounded) {
  for (int i = 0; i < 1000; ++i) statistics.tier("tier" + std::to_string(i))->answered.fetch_add(1);
  const auto counts = statistics.counts();
  EXPECT_LE(counts.tiers.size(), Statistics::kNamesMax + 1);
  std::uint64_t sum = 0;
  for (const auto& tier : counts.tiers) sum += tier.answered;
  EXPECT_EQ(sum, 1000U);
}

TEST_F(StatisticsTest, StatusIsDegradedWhileTheBreakerIsOpen) {
  EXPECT_FALSE(degraded(route, now, now, wall));
  fail(unreachable("connection refused"));
  EXPECT_FALSE(degraded(route, now, now, wall)) << "once is nothing";
  fail(unreachable("connection refused"));
  const SteadyTime later = now + std::chrono::seconds(60);
  const auto reported = degraded(route, now, later, wall + std::chrono::seconds(60));
  ASSERT_TRUE(reported);
  EXPECT_EQ(
      codec::write_json(to_json(*reported)),
      R"({"reason":"BreakerOpen","message":"cloud: Unreachable: connection refused","since":"2026-01-31T12:00:00Z"})");
  EXPECT_EQ(
      codec::write_json(tiers_json(route, statistics.counts(), "")),
      R"([{"name":"edge","state":"Ready"},{"name":"cloud","state":"Open","lastError":"Unreachable: connection refused"}])");
  gate->probed(*gate->probe(later), std::nullopt, later);
  EXPECT_FALSE(degraded(route, now, later, wall));
  gate->set_version("7");
  EXPECT_EQ(codec::write_json(tiers_json(route, statistics.counts(), "")),
            R"([{"name":"edge","state":"Ready"},{"name":"cloud","state":"Ready","version":"7"}])");
}

TEST_F(StatisticsTest, StatusIsDegradedWithoutAnAddress) {
  route.tiers[1].gate.reset();
  const auto reported =
      degraded(route, now, now + std::chrono::seconds(5), wall + std::chrono::seconds(5));
  ASSERT_TRUE(reported);
  EXPECT_EQ(reported->reason, "NoAddress");
  EXPECT_EQ(reported->message, "cloud: its address is not known yet");
  EXPECT_EQ(reported->since, wall);
}

// Gives the thread sanitizer work, and checks sums that must hold in any order.
TEST_F(StatisticsTest, ConcurrentRequestsKeepLimitsAndSums) {
  constexpr int kThreads = 4;
  constexpr int kRequests = 2000;
  const auto shared = std::make_shared<const Route>([&] {
    Route made = route;
    made.tiers[0].policy = make_policy("Margin", {}).value();
    made.tiers[1].gate = std::make_shared<TierGate>(
        Breaker::Options{.failures_max = 1'000'000, .failure_rate = 2}, *rng);  // never opens
    made.in_flight = std::make_shared<InFlight>(2);
    return made;
  }());
  std::latch called(kThreads);  // each thread has asked for its first call, and holds it
  std::atomic<int> first_calls{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto random = seeded_rng(static_cast<std::uint64_t>(t));
      for (int i = 0; i < kRequests; ++i) {
        Machine machine(shared, now + std::chrono::seconds(2), *random);
        Step step = machine.start(now);
        step = machine.answered(step.call, {.hard = i % 2 == 0, .samples = 1}, now);
        if (i == 0) {
          if (step.kind == Step::Kind::kCall) ++first_calls;
          called.arrive_and_wait();
        }
        if (step.kind == Step::Kind::kCall) {
          step = random->below(8) == 0 ? machine.failed(step.call, of_status(500, "x"), now)
                                       : machine.answered(step.call, {}, now);
        }
        EXPECT_EQ(step.kind, Step::Kind::kAnswer);
        statistics.count(machine.summary(), {}, tiers);
        if (i % 100 == 0) (void)counters_json(statistics.counts());
      }
    });
  }
  threads.clear();
  EXPECT_EQ(first_calls, 2) << "the limit of in_flight";
  EXPECT_EQ(shared->in_flight->now(), 0U);
  const auto counts = statistics.counts();
  EXPECT_EQ(counts.inferences, static_cast<std::uint64_t>(kThreads * kRequests));
  EXPECT_EQ(counts.tiers[0].answered + counts.tiers[1].answered, counts.inferences);
  std::uint64_t reasons = 0;
  for (const std::uint64_t reason : counts.tiers[0].reasons) reasons += reason;
  EXPECT_EQ(counts.tiers[0].name, "cloud");
  EXPECT_EQ(counts.hard, counts.tiers[0].answered + reasons);
}

}  // namespace
}  // namespace varda::tiers
