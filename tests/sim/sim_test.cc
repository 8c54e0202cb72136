// The simulator tested: the same seed is the same schedule, and known mistakes are found.
#include <cstdlib>
#include <gtest/gtest.h>

#include "base/log.h"
#include "schedule.h"

namespace varda::sim {
namespace {

Outcome run(Cluster& cluster, std::uint64_t seed, const Mutations& mutations = {}, Trace trace = Trace::kNone) {
  Schedule schedule(cluster, seed, mutations, trace);
  return schedule.run();
}

class Simulator : public testing::Test {
 protected:
  // Faults are what these schedules are made of; nobody wants to read of each.
  static void SetUpTestSuite() { log::configure(log::Format::kText, log::Level::kError); }
};

TEST_F(Simulator, ASeedIsOneScheduleWhateverRanBeforeIt) {
  Cluster fresh, used;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Outcome one = run(used, seed);
    EXPECT_FALSE(one.failure) << "seed " << seed << ": " << *one.failure;
  }
  for (const std::uint64_t seed : {7, 3}) {
    const Outcome a = run(fresh, seed, {}, Trace::kKeep), b = run(used, seed, {}, Trace::kKeep);
    EXPECT_EQ(a.fingerprint, b.fingerprint) << "seed " << seed;
    EXPECT_EQ(a.steps, b.steps) << "seed " << seed;
    ASSERT_GT(a.trace.size(), 50u);
  }
  EXPECT_NE(run(fresh, 7).fingerprint, run(fresh, 8).fingerprint);
}

struct Mistake {
  const char* name;
  bool Mutations::*what;
  const char* found;  // part of what the checks say
};

class KnownMistake : public testing::TestWithParam<Mistake> {
 protected:
  static void SetUpTestSuite() { log::configure(log::Format::kText, log::Level::kError); }
};

// If a check stopped seeing anything, no campaign would ever tell.
TEST_P(KnownMistake, IsFoundWithinAFewSchedules) {
  Cluster cluster;
  Mutations mutations;
  mutations.*GetParam().what = true;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const Outcome outcome = run(cluster, seed, mutations);
    if (!outcome.failure) continue;
    EXPECT_NE(outcome.failure->find(GetParam().found), std::string::npos) << "seed " << seed << ": " << *outcome.failure;
    return;
  }
  FAIL() << "not found";
}

INSTANTIATE_TEST_SUITE_P(
    Checks, KnownMistake,
    testing::Values(Mistake{"AnAgentReportsAServerThatDoesNotAnswer", &Mutations::server_lies, "never answered"},
                    Mistake{"AnAgentAcknowledgesADeletionAndLeavesTheFiles", &Mutations::files_stay, "still exposes"},
                    Mistake{"AWatchLosesDeletions", &Mutations::deletions_are_lost, "converge"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace varda::sim
