#include "tiers/machine.h"

#include <gtest/gtest.h>

namespace varda::tiers {
namespace {

using std::chrono::milliseconds;
using Kind = Step::Kind;

constexpr Judgement kEasy{.hard = false, .samples = 1, .samples_hard = 0, .samples_invalid = 0};
constexpr Judgement kHard{.hard = true, .samples = 1, .samples_hard = 1, .samples_invalid = 0};

std::shared_ptr<const Policy> policy(std::string_view name) {
  return make_policy(name, {}).value();
}

/// Two tiers with a policy that needs the answer; starts at time 0, deadline 1 s.
class MachineTest : public ::testing::Test {
 protected:
  void tiers(std::vector<std::string_view> policies) {
    auto made = std::make_shared<Route>();
    made->deadline = milliseconds(1000);
    made->in_flight = in_flight;
    for (std::size_t i = 0; i < policies.size(); ++i) {
      Route::Tier tier{.name = "t" + std::to_string(i), .policy = {}, .gate = {}, .deadline = {}};
      if (!policies[i].empty()) tier.policy = policy(policies[i]);
      if (i > 0) tier.gate = std::make_shared<TierGate>(Breaker::Options{}, *rng);
      made->tiers.push_back(std::move(tier));
    }
    route = made;
  }
  Machine& machine() {
    if (!made_) made_.emplace(route, start_ + milliseconds(1000), *rng);
    return *made_;
  }
  SteadyTime at(int ms) const { return start_ + milliseconds(ms); }
  Step begin() { return machine().start(at(0)); }
  /// The first tier answers at once, hard; the second tier is called.
  Step begin_hard() {
    const Step run = begin();
    EXPECT_EQ(run.kind, Kind::kRun);
    const Step called = machine().answered(run.call, kHard, at(1));
    EXPECT_EQ(called.kind, Kind::kCall);
    EXPECT_EQ(called.tier, 1);
    return called;
  }
  std::string fallback() const { return made_->summary().fallback_text(*route); }

  void SetUp() override { tiers({"CrossEntropy", ""}); }

  std::unique_ptr<Rng> rng = seeded_rng(1);
  std::shared_ptr<InFlight> in_flight = std::make_shared<InFlight>(4);
  std::shared_ptr<Route> route;

 private:
  const SteadyTime start_{std::chrono::hours(1)};
  std::optional<Machine> made_;
};

TEST_F(MachineTest, EasyAnswerOfTheFirstTierIsReturned) {
  const Step run = begin();
  EXPECT_EQ(run.kind, Kind::kRun);
  EXPECT_EQ(run.until, at(1000));
  const Step step = machine().answered(run.call, kEasy, at(3));
  EXPECT_EQ(step.kind, Kind::kAnswer);
  EXPECT_EQ(step.tier, 0);
  EXPECT_EQ(machine().summary().called_text(*route), "");
  EXPECT_EQ(fallback(), "");
  EXPECT_FALSE(machine().summary().hard);
  EXPECT_EQ(machine().summary().tiers[0].latency, milliseconds(3));
  EXPECT_EQ(in_flight->now(), 0U);
}

TEST_F(MachineTest, HardExampleGoesToTheNextTier) {
  const Step called = begin_hard();
  EXPECT_EQ(in_flight->now(), 1U);
  EXPECT_EQ(called.until, at(1000));
  const Step step = machine().answered(called.call, kEasy, at(20));
  EXPECT_EQ(step.kind, Kind::kAnswer);
  EXPECT_EQ(step.tier, 1);
  EXPECT_TRUE(machine().summary().hard);
  EXPECT_EQ(machine().summary().called_text(*route), "t1");
  EXPECT_EQ(fallback(), "");
  EXPECT_EQ(in_flight->now(), 0U);
}

TEST_F(MachineTest, FailureFallsBackToTheBestAnswerWithAReason) {
  const std::pair<Failure, const char*> cases[] = {
      {of_status(400, ""), "t1: Refused"},           {of_status(500, ""), "t1: Failed"},
      {of_status(429, ""), "t1: Overloaded"},        {unreadable(""), "t1: Failed"},
      {{.reason = Reason::kTimeout}, "t1: Timeout"},
  };
  for (const auto& [failure, text] : cases) {
    tiers({"CrossEntropy", ""});
    Machine one(route, at(1000), *rng);
    const Step called = one.answered(one.start(at(0)).call, kHard, at(1));
    const Step step = one.failed(called.call, failure, at(2));
    EXPECT_EQ(step.kind, Kind::kAnswer) << text;
    EXPECT_EQ(step.tier, 0);
    EXPECT_EQ(one.summary().fallback_text(*route), text);
  }
}

TEST_F(MachineTest, UnansweredCallIsRetriedOnceOnANewConnection) {
  const Step called = begin_hard();
  EXPECT_FALSE(called.new_connection);
  const Step again = machine().failed(called.call, unreachable("reset"), at(2));
  EXPECT_EQ(again.kind, Kind::kCall);
  EXPECT_EQ(again.tier, 1);
  EXPECT_NE(again.call, called.call);
  EXPECT_TRUE(again.new_connection);
  const Step step = machine().failed(again.call, of_status(503, ""), at(3));
  EXPECT_EQ(step.kind, Kind::kAnswer);
  EXPECT_EQ(fallback(), "t1: Overloaded");
  EXPECT_EQ(machine().summary().tiers[1].attempts, 2);
}

TEST_F(MachineTest, DeadlineOfTheTierAppliesToTheRetry) {
  route->tiers[1].deadline = milliseconds(100);
  const Step called = begin_hard();
  EXPECT_EQ(called.until, at(101));
  const Step again = machine().failed(called.call, of_status(503, ""), at(80));
  EXPECT_EQ(again.until, at(101));
  const Step step = machine().time_passed(at(101));
  EXPECT_EQ(step.kind, Kind::kAnswer);
  EXPECT_EQ(step.cancel, again.call);
  EXPECT_EQ(fallback(), "t1: Timeout");
}

TEST_F(MachineTest, BestAnswerIsReturnedAtTheDeadline) {
  const Step called = begin_hard();
  EXPECT_EQ(machine().time_passed(at(999)).kind, Kind::kWait);
  const Step step = machine().time_passed(at(1000));
  EXPECT_EQ(step.kind, Kind::kAnswer);
  EXPECT_EQ(step.tier, 0);
  EXPECT_EQ(step.cancel, called.call);
  EXPECT_EQ(machine().time_passed(at(2000)).kind, Kind::kNothing);
  EXPECT_EQ(machine().answered(called.call, kEasy, at(2000)).kind, Kind::kNothing);
  EXPECT_EQ(in_flight->now(), 0U);
}

TEST_F(MachineTest, FailingFirstTierIsSkipped) {
  const Step run = begin();
  const Step called = machine().failed(run.call, of_status(500, "out of memory"), at(1));
  EXPECT_EQ(called.kind, Kind::kCall);
  const Step step = machine().answered(called.call, kEasy, at(2));
  EXPECT_EQ(step.kind, Kind::kAnswer);
  EXPECT_EQ(step.tier, 1);
  EXPECT_EQ(machine().summary().tiers[0].reason, Reason::kFailed);
  EXPECT_FALSE(machine().summary().hard);
}

TEST_F(MachineTest, ErrorOfTheFirstTierIsReturnedIfAllFail) {
  const Step run = begin();
  const Step called = machine().failed(run.call, of_status(500, "out of memory"), at(1));
  const Step step = machine().failed(called.call, of_status(400, ""), at(2));
  EXPECT_EQ(step.kind, Kind::kFail);
  EXPECT_EQ(step.tier, 0);
  EXPECT_EQ(step.reason, Reason::kFailed);
}

TEST_F(MachineTest, RequestRefusedByTheFirstTierFailsAtOnce) {
  const Step step = machine().failed(begin().call, of_status(400, "bad shape"), at(1));
  EXPECT_EQ(step.kind, Kind::kFail);
  EXPECT_EQ(step.reason, Reason::kRefused);
  EXPECT_EQ(machine().summary().called_text(*route), "");
}

TEST_F(MachineTest, LateAnswerOfTheFirstTierIsUsed) {
  route->tiers[0].deadline = milliseconds(50);
  const Step run = begin();
  EXPECT_EQ(run.until, at(50));
  const Step called = machine().time_passed(at(50));
  EXPECT_EQ(called.kind, Kind::kCall);
  EXPECT_EQ(called.cancel, kNoCall) << "a run cannot be ended";
  const Step step = machine().answered(run.call, kEasy, at(60));
  EXPECT_EQ(step.kind, Kind::kAnswer);
  EXPECT_EQ(step.tier, 0);
  EXPECT_EQ(step.cancel, called.call);
  EXPECT_EQ(in_flight->now(), 0U);
}

TEST_F(MachineTest, LateFirstTierIsAwaitedIfOtherTiersFail) {
  route->tiers[0].deadline = milliseconds(50);
  const Step run = begin();
  const Step called = machine().time_passed(at(50));
  const Step wait = machine().failed(called.call, of_status(500, ""), at(60));
  EXPECT_EQ(wait.kind, Kind::kWait);
  EXPECT_EQ(wait.until, at(1000));
  const Step step = machine().answered(run.call, kHard, at(70));
  EXPECT_EQ(step.kind, Kind::kAnswer);
  EXPECT_EQ(fallback(), "t1: Failed");
}

TEST_F(MachineTest, TierWithoutAnAddressIsNotCalled) {
  route->tiers[1].gate.reset();
  const Step step = machine().answered(begin().call, kHard, at(1));
  EXPECT_EQ(step.kind, Kind::kAnswer);
  EXPECT_EQ(fallback(), "t1: NoAddress");
  EXPECT_EQ(machine().summary().called_text(*route), "");
}

TEST_F(MachineTest, OpenBreakerAndFullLimitFallBackAtOnce) {
  for (int i = 0; i < 5; ++i) {
    const auto ticket = route->tiers[1].gate->admit(at(0));
    route->tiers[1].gate->failed(*ticket, of_status(500, ""), at(0));
  }
  Machine one(route, at(1000), *rng);
  EXPECT_EQ(one.answered(one.start(at(0)).call, kHard, at(1)).kind, Kind::kAnswer);
  EXPECT_EQ(one.summary().fallback_text(*route), "t1: BreakerOpen");
  tiers({"CrossEntropy", ""});
  in_flight->set_max(0);
  Machine other(route, at(1000), *rng);
  EXPECT_EQ(other.answered(other.start(at(0)).call, kHard, at(1)).kind, Kind::kAnswer);
  EXPECT_EQ(other.summary().fallback_text(*route), "t1: InFlightLimit");
}

TEST_F(MachineTest, EveryExampleIsEasyWithoutAPolicy) {
  tiers({"", ""});
  const Step step = machine().answered(begin().call, kHard, at(1));
  EXPECT_EQ(step.kind, Kind::kAnswer);
  EXPECT_EQ(step.tier, 0);
}

TEST_F(MachineTest, PolicyBeforeInferenceSkipsTheFirstTier) {
  tiers({"AlwaysCloud", ""});
  const Step called = begin();
  EXPECT_EQ(called.kind, Kind::kCall);
  EXPECT_EQ(called.until, at(750)) << "a quarter of the time is kept for the first";
  const Step step = machine().answered(called.call, kEasy, at(10));
  EXPECT_EQ(step.kind, Kind::kAnswer);
  EXPECT_EQ(step.tier, 1);
  EXPECT_TRUE(machine().summary().hard);
}

TEST_F(MachineTest, SkippedFirstTierRunsIfTheNextTimesOut) {
  tiers({"AlwaysCloud", ""});
  begin();
  const Step run = machine().time_passed(at(750));
  EXPECT_EQ(run.kind, Kind::kRun);
  EXPECT_FALSE(machine().wants_judgement(0));
  const Step step = machine().answered(run.call, kHard, at(760));
  EXPECT_EQ(step.kind, Kind::kAnswer);
  EXPECT_EQ(step.tier, 0);
  EXPECT_EQ(fallback(), "t1: Timeout");
}

TEST_F(MachineTest, NeverCloudReturnsTheFirstAnswer) {
  tiers({"NeverCloud", ""});
  const Step run = begin();
  EXPECT_FALSE(machine().wants_judgement(0));
  EXPECT_EQ(machine().answered(run.call, kHard, at(1)).kind, Kind::kAnswer);
  EXPECT_FALSE(machine().summary().hard);
}

TEST_F(MachineTest, MiddleTierAppliesItsOwnPolicy) {
  tiers({"CrossEntropy", "Margin", ""});
  Step called = begin_hard();
  called = machine().answered(called.call, kHard, at(5));
  EXPECT_EQ(called.kind, Kind::kCall);
  EXPECT_EQ(called.tier, 2);
  const Step step = machine().failed(called.call, of_status(500, ""), at(9));
  EXPECT_EQ(step.tier, 1);
  EXPECT_EQ(fallback(), "t2: Failed");
  EXPECT_EQ(machine().summary().called_text(*route), "t1,t2");
}

TEST_F(MachineTest, FailingMiddleTierIsSkipped) {
  tiers({"CrossEntropy", "Margin", ""});
  const Step first = begin_hard();
  const Step called = machine().failed(first.call, of_status(500, ""), at(5));
  EXPECT_EQ(called.tier, 2);
  EXPECT_EQ(machine().answered(called.call, kEasy, at(9)).tier, 2);
  EXPECT_EQ(fallback(), "") << "no better tier's answer is missing";
}

TEST_F(MachineTest, DisconnectedClientCancelsTheCall) {
  const Step called = begin_hard();
  const Step step = machine().client_disconnected(at(2));
  EXPECT_EQ(step.kind, Kind::kNothing);
  EXPECT_EQ(step.cancel, called.call);
  EXPECT_EQ(machine().summary().end, Summary::End::kDisconnected);
  EXPECT_EQ(machine().summary().tiers[1].reason, Reason::kClientDisconnected);
  EXPECT_EQ(machine().summary().tiers[0].reason, std::nullopt) << "it had answered";
  EXPECT_EQ(in_flight->now(), 0U);
}

TEST_F(MachineTest, DisconnectedClientsDoNotOpenTheBreaker) {
  for (int i = 0; i < 100; ++i) {
    Machine one(route, at(i * 10 + 5000), *rng);
    const Step called = one.answered(one.start(at(i * 10)).call, kHard, at(i * 10));
    ASSERT_EQ(called.kind, Kind::kCall);
    EXPECT_EQ(one.client_disconnected(at(i * 10 + 5)).cancel, called.call);
    one.failed(called.call, of_status(500, ""),
               at(i * 10 + 6));  // a late event of the cancelled call
    EXPECT_EQ(one.summary().tiers[1].reason, Reason::kClientDisconnected);
  }
  const TierGate::Health health = route->tiers[1].gate->health();
  EXPECT_EQ(health.state, Breaker::State::kClosed);
  EXPECT_FALSE(health.last_error);
  EXPECT_EQ(in_flight->now(), 0U);
}

TEST_F(MachineTest, HangingTierIsDetectedByProbesDespiteDisconnects) {
  for (const bool hangs : {true, false}) {
    tiers({"CrossEntropy", ""});
    TierGate& gate = *route->tiers[1].gate;
    gate.succeeded(*gate.admit(at(0)), at(0));
    int questions = 0;
    // One request every 10 ms, each cancelled 5 ms later; twice a second the test checks whether a
    // probe is due.
    for (int ms = 10; ms <= 20000; ms += 10) {
      Machine one(route, at(ms + 1000), *rng);
      one.answered(one.start(at(ms)).call, kHard, at(ms));
      one.client_disconnected(at(ms + 5));
      if (ms % 500 != 0) continue;
      const auto probe = gate.probe(at(ms));
      if (!probe) continue;
      ++questions;
      gate.probed(*probe, hangs ? std::optional(Failure{.reason = Reason::kTimeout}) : std::nullopt,
                  at(ms));
    }
    EXPECT_EQ(gate.health().state == Breaker::State::kClosed, !hangs);
    EXPECT_EQ(gate.health().last_error.has_value(), hangs);
    EXPECT_GT(questions, 4);
    EXPECT_LT(questions, 21) << "at most one a second";
    EXPECT_EQ(in_flight->now(), 0U);
  }
}

TEST_F(MachineTest, TimeoutOfAShortClientDeadlineIsNotAFailure) {
  for (int i = 0; i < 20; ++i) {
    Machine one(route, at(i * 10 + 5), *rng);
    one.answered(one.start(at(i * 10)).call, kHard, at(i * 10));
    EXPECT_EQ(one.time_passed(at(i * 10 + 5)).kind, Kind::kAnswer);
    EXPECT_EQ(one.summary().fallback_text(*route), "t1: Timeout");
  }
  EXPECT_EQ(route->tiers[1].gate->health().state, Breaker::State::kClosed);
}

TEST_F(MachineTest, TierThatIsAlwaysCalledLateIsProbed) {
  TierGate& gate = *route->tiers[1].gate;
  gate.succeeded(*gate.admit(at(0)), at(0));
  EXPECT_FALSE(gate.probe(at(500))) << "all is well";
  for (int i = 0; i < 20; ++i) {
    Machine one(route, at(i * 100 + 1000), *rng);
    // The first tier takes most of the time.
    one.answered(one.start(at(i * 100)).call, kHard, at(i * 100 + 600));
    EXPECT_EQ(one.time_passed(at(i * 100 + 1000)).kind, Kind::kAnswer);
  }
  EXPECT_EQ(gate.health().state, Breaker::State::kClosed);
  EXPECT_FALSE(gate.probe(at(1999)));
  const auto probe = gate.probe(at(2000));
  ASSERT_TRUE(probe) << "a second after the first timeout, although others followed";
  gate.probed(*probe, std::nullopt, at(2001));
  EXPECT_FALSE(gate.probe(at(60000)));
}

TEST_F(MachineTest, RequestRefusedByEveryTierIsNoTierFailure) {
  for (const int status : {400, 404}) {
    tiers({"AlwaysCloud", ""});
    Machine one(route, at(1000), *rng);
    const Step called = one.start(at(0));
    ASSERT_EQ(called.tier, 1);
    const Step run = one.failed(called.call, of_status(status, "no"), at(1));
    ASSERT_EQ(run.kind, Kind::kRun);
    EXPECT_EQ(one.summary().tiers[1].reason, Reason::kRefused);
    EXPECT_EQ(one.failed(run.call, of_status(400, "bad shape"), at(2)).kind, Kind::kFail);
    EXPECT_EQ(one.summary().tiers[1].reason.has_value(), status == 404)
        << "what was wrong with the tier still is";
  }
}

TEST_F(MachineTest, BytesInFlightAreLimited) {
  in_flight = std::make_shared<InFlight>(4, 100);
  tiers({"CrossEntropy", ""});
  const auto is_forwarded = [&](Machine& one) {
    return one.answered(one.start(at(0)).call, kHard, at(1)).kind == Kind::kCall;
  };
  {
    Machine large(route, at(1000), *rng, 1000);
    EXPECT_TRUE(is_forwarded(large)) << "alone, however large";
    Machine other(route, at(1000), *rng, 1);
    EXPECT_FALSE(is_forwarded(other));
    EXPECT_EQ(other.summary().fallback_text(*route), "t1: InFlightLimit");
  }
  EXPECT_EQ(in_flight->bytes(), 0U);
  Machine first(route, at(1000), *rng, 60);
  Machine second(route, at(1000), *rng, 41);
  Machine third(route, at(1000), *rng, 40);
  EXPECT_TRUE(is_forwarded(first));
  EXPECT_FALSE(is_forwarded(second));
  EXPECT_TRUE(is_forwarded(third));
  EXPECT_EQ(in_flight->bytes(), 100U);
  first.client_disconnected(at(2));
  EXPECT_EQ(in_flight->bytes(), 40U);
  in_flight->set_max(1);
  Machine fourth(route, at(1000), *rng, 1);
  EXPECT_FALSE(is_forwarded(fourth));
  EXPECT_EQ(in_flight->bytes(), 40U) << "who is refused holds nothing";
}

TEST_F(MachineTest, DestroyedMachineReleasesItsPermit) {
  {
    Machine one(route, at(1000), *rng);
    one.answered(one.start(at(0)).call, kHard, at(1));
    EXPECT_EQ(in_flight->now(), 1U);
    const Machine moved = std::move(one);
    EXPECT_EQ(in_flight->now(), 1U);
  }
  EXPECT_EQ(in_flight->now(), 0U);
}

}  // namespace
}  // namespace varda::tiers
