// VARDA_TIER_SEED=N runs one seed, VARDA_TIER_SEEDS=N runs N seeds.
#include "tiers/testing/simulator.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <iostream>
#include <string>

namespace varda::tiers::testing {
namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::stoull(text);
}

TEST(Simulator, EveryRequestHasOneBestAnswerInTimeUnderAnyFault) {
  const std::uint64_t first = from_environment("VARDA_TIER_SEED", 1);
  const std::uint64_t seeds =
      from_environment("VARDA_TIER_SEEDS", std::getenv("VARDA_TIER_SEED") == nullptr ? 3000 : 1);
  Seen seen;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const Outcome outcome = simulate(seed);
    ASSERT_EQ(outcome.violation, "") << "VARDA_TIER_SEED=" << seed;
    seen.add(outcome.seen);
  }
  std::cout << seen.requests << " requests: " << seen.answered << " answered, " << seen.failed
            << " failed, " << seen.disconnected << " gone; " << seen.fallbacks << " fallbacks, "
            << seen.retries << " retries, " << seen.probes << " probes, " << seen.openings
            << " openings, " << seen.late_answers << " late answers, " << seen.descents
            << " descents, " << seen.limited << " limited, " << seen.deadlines
            << " ended by the deadline\n";
  if (seeds < 1000) return;
  // Every kind of event must occur, or it is not tested.
  for (const std::uint64_t count :
       {seen.answered, seen.failed, seen.disconnected, seen.fallbacks, seen.retries, seen.probes,
        seen.background_probes, seen.openings, seen.late_answers, seen.descents, seen.limited,
        seen.doubled, seen.unknown_calls, seen.deadlines}) {
    EXPECT_GT(count, seeds / 20);
  }
}

TEST(Simulator, EqualSeedsGiveEqualTraces) {
  EXPECT_EQ(simulate(42).seen.trace, simulate(42).seen.trace);
  EXPECT_NE(simulate(42).seen.trace, simulate(43).seen.trace);
}

}  // namespace
}  // namespace varda::tiers::testing
