#include "tiers/breaker.h"

#include <gtest/gtest.h>

#include "tiers/tier_gate.h"

namespace varda::tiers {
namespace {

using std::chrono::milliseconds;
using State = Breaker::State;
using Outcome = Breaker::Outcome;
using Evidence = Breaker::Evidence;

class BreakerTest : public ::testing::Test {
 protected:
  void request(Outcome outcome) {
    const auto ticket = breaker.admit(now);
    ASSERT_TRUE(ticket);
    breaker.finished(*ticket, outcome, Evidence::kRequest, now);
  }
  void open() {
    for (unsigned i = 0; i < options.failures_max; ++i) request(Outcome::kFailure);
    ASSERT_EQ(breaker.state(), State::kOpen);
  }
  /// Duration from now until the breaker admits a call.
  milliseconds pause() const {
    Breaker copy = breaker;
    milliseconds waited{0};
    for (; !copy.admit(now + waited); waited += milliseconds(10))
      EXPECT_LT(waited, milliseconds(60000));
    return waited;
  }

  std::unique_ptr<Rng> rng = seeded_rng(3);
  Breaker::Options options;
  Breaker breaker{options, *rng};
  SteadyTime now{std::chrono::hours(1)};
};

TEST_F(BreakerTest, BreakerOpensAfterConsecutiveFailures) {
  for (int i = 0; i < 4; ++i) request(Outcome::kFailure);
  request(Outcome::kSuccess);
  for (int i = 0; i < 4; ++i) request(Outcome::kFailure);
  request(Outcome::kNothing);
  EXPECT_EQ(breaker.state(), State::kClosed);
  EXPECT_FALSE(breaker.unavailable_since());
  request(Outcome::kFailure);
  EXPECT_EQ(breaker.state(), State::kOpen);
  EXPECT_EQ(breaker.unavailable_since(), now);
  EXPECT_FALSE(breaker.admit(now));
}

TEST_F(BreakerTest, BreakerOpensIfHalfOfTheCallsInTheWindowFail) {
  for (int i = 0; i < 9; ++i) {
    request(Outcome::kFailure);
    request(Outcome::kSuccess);
    now += milliseconds(100);
  }
  EXPECT_EQ(breaker.state(), State::kClosed);
  // Older calls left the window: 18 calls again, too few for the rate.
  now += milliseconds(11000);
  for (int i = 0; i < 9; ++i) {
    request(Outcome::kFailure);
    request(Outcome::kSuccess);
    now += milliseconds(100);
  }
  EXPECT_EQ(breaker.state(), State::kClosed);
  request(Outcome::kSuccess);
  request(Outcome::kFailure);
  EXPECT_EQ(breaker.state(), State::kOpen);
}

TEST_F(BreakerTest, ManySuccessesOutweighSomeFailures) {
  for (int i = 0; i < 500; ++i) {
    request(i % 5 < 2 ? Outcome::kFailure : Outcome::kSuccess);
    now += milliseconds(20);
  }
  EXPECT_EQ(breaker.state(), State::kClosed);
}

TEST_F(BreakerTest, OneProbeAfterThePauseDecides) {
  open();
  now += pause();
  const auto probe = breaker.admit(now);
  ASSERT_TRUE(probe);
  EXPECT_TRUE(probe->probe);
  EXPECT_EQ(breaker.state(), State::kHalfOpen);
  EXPECT_FALSE(breaker.admit(now + std::chrono::hours(1)));
  EXPECT_FALSE(breaker.probe(now + std::chrono::hours(1)));
  breaker.finished(*probe, Outcome::kSuccess, Evidence::kRequest, now);
  EXPECT_EQ(breaker.state(), State::kClosed);
  EXPECT_TRUE(breaker.admit(now));
}

TEST_F(BreakerTest, InconclusiveProbeAllowsAnotherProbe) {
  open();
  now += pause();
  const auto probe = breaker.admit(now);
  breaker.finished(*probe, Outcome::kNothing, Evidence::kRequest, now);
  EXPECT_EQ(breaker.state(), State::kOpen);
  EXPECT_EQ(pause(), milliseconds(0));
}

TEST_F(BreakerTest, PausesDoubleUpToAMaximumWithin20Percent) {
  open();
  const SteadyTime opened = now;
  for (const int expected : {1000, 2000, 4000, 8000, 16000, 30000, 30000}) {
    const milliseconds waited = pause();
    EXPECT_GE(waited, milliseconds(expected) * 0.8 - milliseconds(10)) << expected;
    EXPECT_LE(waited, milliseconds(expected) * 1.2 + milliseconds(10)) << expected;
    now += waited;
    request(Outcome::kFailure);
    EXPECT_EQ(breaker.unavailable_since(), opened);
  }
}

TEST_F(BreakerTest, JitterDependsOnlyOnTheSeed) {
  const auto first_pause = [](std::uint64_t seed) {
    const auto random = seeded_rng(seed);
    Breaker made({.failures_max = 1}, *random);
    const SteadyTime at{std::chrono::hours(1)};
    made.finished(*made.admit(at), Outcome::kFailure, Evidence::kRequest, at);
    milliseconds waited{0};
    while (!made.probe(at + waited)) waited += milliseconds(1);
    return waited;
  };
  EXPECT_EQ(first_pause(1), first_pause(1));
  EXPECT_NE(first_pause(1), first_pause(2));
}

TEST_F(BreakerTest, BreakerClosedByReadinessReopensAfterOneFailure) {
  open();
  now += pause();
  const auto probe = breaker.probe(now);
  ASSERT_TRUE(probe);
  breaker.finished(*probe, Outcome::kSuccess, Evidence::kReadiness, now);
  EXPECT_EQ(breaker.state(), State::kClosed);
  request(Outcome::kFailure);
  EXPECT_EQ(breaker.state(), State::kOpen);
  EXPECT_GE(pause(), milliseconds(1600 - 10));
}

TEST_F(BreakerTest, PauseIsShortAgainAfterAPeriodOfSuccess) {
  open();
  now += pause();
  request(Outcome::kFailure);  // the second pause is twice as long
  now += pause();
  request(Outcome::kSuccess);
  now += milliseconds(5000);
  request(Outcome::kSuccess);
  open();
  EXPECT_LE(pause(), milliseconds(1200 + 10));
}

TEST_F(BreakerTest, LateOutcomesAreIgnored) {
  const auto before = breaker.admit(now);
  open();
  breaker.finished(*before, Outcome::kSuccess, Evidence::kRequest, now);
  EXPECT_EQ(breaker.state(), State::kOpen);
  now += pause();
  const auto probe = breaker.admit(now);
  breaker.finished(*before, Outcome::kFailure, Evidence::kRequest, now);
  EXPECT_EQ(breaker.state(), State::kHalfOpen);
  breaker.finished(*probe, Outcome::kSuccess, Evidence::kRequest, now);
  breaker.finished(*probe, Outcome::kFailure, Evidence::kRequest, now);
  EXPECT_EQ(breaker.state(), State::kClosed);
}

TEST_F(BreakerTest, ProbesRunBeforeTheFirstOutcomeAndAfterAFailure) {
  auto probe = breaker.probe(now);
  ASSERT_TRUE(probe);
  EXPECT_FALSE(breaker.probe(now));
  EXPECT_TRUE(breaker.admit(now)) << "requests go on meanwhile";
  breaker.finished(*probe, Outcome::kSuccess, Evidence::kReadiness, now);
  EXPECT_FALSE(breaker.probe(now + std::chrono::hours(1)));
  request(Outcome::kFailure);
  EXPECT_FALSE(breaker.probe(now + milliseconds(999)));
  // Failed checks open the breaker too, without any request.
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(breaker.state(), State::kClosed);
    now += milliseconds(1000);
    probe = breaker.probe(now);
    ASSERT_TRUE(probe);
    breaker.finished(*probe, Outcome::kFailure, Evidence::kReadiness, now);
  }
  EXPECT_EQ(breaker.state(), State::kOpen);
}

TEST(Failures, EachStatusMapsToFaultAndRetry) {
  for (const int status : {400, 413, 415, 422}) {
    const Failure of_the_request = of_status(status, "");
    EXPECT_EQ(of_the_request.reason, Reason::kRefused) << status;
    EXPECT_FALSE(of_the_request.tier_at_fault || of_the_request.surely_unanswered) << status;
  }
  for (const int status : {401, 403, 404, 405, 410}) {
    const Failure of_the_tier = of_status(status, "");
    EXPECT_EQ(of_the_tier.reason, Reason::kRefused) << status;
    EXPECT_TRUE(of_the_tier.tier_at_fault && !of_the_tier.surely_unanswered) << status;
  }
  const Failure busy = of_status(429, "");
  EXPECT_EQ(busy.reason, Reason::kOverloaded);
  EXPECT_TRUE(busy.tier_at_fault && !busy.surely_unanswered);
  const Failure unavailable = of_status(503, "");
  EXPECT_EQ(unavailable.reason, Reason::kOverloaded);
  EXPECT_TRUE(unavailable.tier_at_fault && unavailable.surely_unanswered);
  const Failure broken = of_status(500, "");
  EXPECT_EQ(broken.reason, Reason::kFailed);
  EXPECT_TRUE(broken.tier_at_fault && !broken.surely_unanswered);
  EXPECT_TRUE(unreachable("refused").surely_unanswered);
  EXPECT_FALSE(unreadable("not JSON").surely_unanswered);
}

TEST(TierGate, RefusedRequestsKeepTheBreakerClosed) {
  const auto rng = seeded_rng(1);
  TierGate gate({}, *rng);
  InFlight in_flight(1);
  const SteadyTime now{std::chrono::hours(1)};
  EXPECT_FALSE(gate.health().seen);
  for (int i = 0; i < 20; ++i) {
    auto permit = Permit::acquire(gate, in_flight, now);
    ASSERT_TRUE(std::holds_alternative<Permit>(permit));
    EXPECT_EQ(in_flight.now(), 1U);
    EXPECT_EQ(std::get<Reason>(Permit::acquire(gate, in_flight, now)), Reason::kInFlightLimit);
    std::get<Permit>(permit).failed(of_status(400, "bad shape"), now);
    EXPECT_EQ(in_flight.now(), 0U);
  }
  EXPECT_EQ(gate.health().state, State::kClosed);
  EXPECT_EQ(gate.health().last_error->message, "bad shape");
}

TEST(TierGate, RefusingTierOpensTheBreakerDespiteBadRequests) {
  for (const int status : {401, 403, 404, 405, 429}) {
    const auto rng = seeded_rng(1);
    TierGate gate({}, *rng);
    InFlight in_flight(1);
    const SteadyTime now{std::chrono::hours(1)};
    const auto fail_with = [&](int status_code) {
      auto permit = Permit::acquire(gate, in_flight, now);
      if (auto* held = std::get_if<Permit>(&permit)) held->failed(of_status(status_code, ""), now);
    };
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(gate.health().state, State::kClosed) << status << " " << i;
      fail_with(400);  // no evidence: the earlier outcome stands
      fail_with(status);
    }
    EXPECT_EQ(gate.health().state, State::kOpen) << status;
  }
}

TEST(TierGate, AbandonedCallIsNoEvidence) {
  const auto rng = seeded_rng(1);
  TierGate gate({}, *rng);
  const SteadyTime now{std::chrono::hours(1)};
  gate.failed(*gate.admit(now), {.message = "given up", .tier_at_fault = false}, now);
  EXPECT_FALSE(gate.health().seen);
  EXPECT_FALSE(gate.health().last_error);
}

TEST(TierGate, PermitIsReleasedOnce) {
  const auto rng = seeded_rng(1);
  TierGate gate({.failures_max = 1}, *rng);
  InFlight in_flight(2);
  SteadyTime now{std::chrono::hours(1)};
  {
    auto first = Permit::acquire(gate, in_flight, now);
    Permit moved = std::move(std::get<Permit>(first));
    EXPECT_EQ(in_flight.now(), 1U);
    moved.failed(unreachable("refused"), now);
    moved.failed(unreachable("refused"), now);
    moved.succeeded(now);
    EXPECT_EQ(in_flight.now(), 0U);
  }
  EXPECT_EQ(gate.health().state, State::kOpen);
  EXPECT_EQ(std::get<Reason>(Permit::acquire(gate, in_flight, now)), Reason::kBreakerOpen);
  EXPECT_EQ(in_flight.now(), 0U);
  now += std::chrono::seconds(2);
  { const auto probe = Permit::acquire(gate, in_flight, now); }
  EXPECT_EQ(in_flight.now(), 0U);
  EXPECT_TRUE(std::holds_alternative<Permit>(Permit::acquire(gate, in_flight, now)))
      << "the probe said nothing";
}

TEST(TierGate, LastErrorIsReportedUntilTheTierRecovers) {
  const auto rng = seeded_rng(1);
  TierGate gate({.failures_max = 2}, *rng);
  InFlight in_flight(2);
  SteadyTime now{std::chrono::hours(1)};
  const auto fail = [&] {
    auto permit = Permit::acquire(gate, in_flight, now);
    std::get<Permit>(permit).failed(unreachable("refused"), now);
  };
  fail();
  now += std::chrono::seconds(5);
  gate.probed(*gate.probe(now), std::nullopt, now);
  EXPECT_TRUE(gate.health().last_error) << "ready, and yet it failed what it was asked last";
  fail();
  EXPECT_TRUE(gate.health().unavailable_since);
  now += std::chrono::seconds(5);
  gate.probed(*gate.probe(now), of_status(404, "no such model"), now);
  EXPECT_EQ(gate.health().last_error->message, "no such model");
  EXPECT_EQ(gate.health().state, State::kOpen);
  now += std::chrono::seconds(5);
  gate.probed(*gate.probe(now), std::nullopt, now);
  EXPECT_FALSE(gate.health().last_error);
  EXPECT_FALSE(gate.health().unavailable_since);
}

}  // namespace
}  // namespace varda::tiers
