// Tests of the simulator: the same seed is the same schedule, and known bugs are found.
#include <cstdlib>
#include <gtest/gtest.h>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/log.h"
#include "schedule.h"

namespace varda::sim {
namespace {

class Simulator : public testing::Test {
 protected:
  // Faults are normal in these schedules, so only errors are logged.
  static void SetUpTestSuite() { log::configure(log::Format::kText, log::Level::kError); }
};

TEST_F(Simulator, OneSeedGivesOneScheduleOnAnyCluster) {
  Cluster fresh, used;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Outcome one = run_full(used, seed);
    EXPECT_FALSE(one.failure) << "seed " << seed << ": " << *one.failure;
  }
  for (const std::uint64_t seed : {7, 3}) {
    const Outcome a = run_full(fresh, seed, {}, Trace::kKeep),
                  b = run_full(used, seed, {}, Trace::kKeep);
    EXPECT_EQ(a.fingerprint, b.fingerprint) << "seed " << seed;
    EXPECT_EQ(a.steps, b.steps) << "seed " << seed;
    ASSERT_GT(a.trace.size(), 50u);
  }
  EXPECT_NE(run_full(fresh, 7).fingerprint, run_full(fresh, 8).fingerprint);
}

TEST_F(Simulator, ShortSchedulesRepeatAfterTheSameBatch) {
  Cluster fresh, used;
  (void)run_full(used, 5);
  const auto fingerprints = [](Cluster& cluster, Trace trace) {
    std::vector<std::uint64_t> out;
    Batch batch(cluster, 3, {}, trace);
    EXPECT_FALSE(batch.begin().failure);
    for (int i = 0; i < 10; ++i) {
      const Outcome outcome = batch.next();
      EXPECT_FALSE(outcome.failure) << *outcome.failure;
      if (outcome.failure) break;
      out.push_back(outcome.fingerprint);
    }
    return out;
  };
  const std::vector<std::uint64_t> first = fingerprints(fresh, Trace::kNone);
  EXPECT_EQ(first, fingerprints(used, Trace::kKeep));
  EXPECT_EQ(std::set<std::uint64_t>(first.begin(), first.end()).size(), 10u);
}

struct Mistake {
  const char* name;
  bool Mutations::*what;
  const char* found;  // part of the reported failure
  std::optional<Cast> cast = {};
};

class KnownMistake : public testing::TestWithParam<Mistake> {
 protected:
  static void SetUpTestSuite() { log::configure(log::Format::kText, log::Level::kError); }

  static Mutations mutations() {
    Mutations out;
    out.*GetParam().what = true;
    out.cast = GetParam().cast;
    return out;
  }
  /// Whether the matching check found the bug; other checks may see consequences of it.
  static bool found(const Outcome& outcome) {
    return outcome.failure && outcome.failure->find(GetParam().found) != std::string::npos;
  }
};

// A check that no longer sees anything would go unnoticed in campaigns.
TEST_P(KnownMistake, MistakeIsFoundWithin300Schedules) {
  Cluster cluster;
  for (std::uint64_t seed = 1; seed <= 300; ++seed)
    if (found(run_full(cluster, seed, mutations()))) return;
  FAIL() << "not found";
}

class KnownMistakeInShortSchedules : public KnownMistake {};

TEST_P(KnownMistakeInShortSchedules, MistakeIsFoundWithin60Batches) {
  Cluster cluster;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Batch batch(cluster, seed, mutations());
    Outcome outcome = batch.begin();
    for (std::uint64_t i = 0; i < Batch::kSchedules && !outcome.failure; ++i)
      outcome = batch.next();
    if (found(outcome)) return;
  }
  FAIL() << "not found";
}

const Mistake kMistakes[] = {
    Mistake{"AnAgentReportsAServerThatDoesNotAnswer", &Mutations::server_lies, "never answered"},
    Mistake{"AnAgentAcknowledgesADeletionAndLeavesTheFiles", &Mutations::files_stay,
            "still exposes"},
    Mistake{"AnArchiveIsExposedBeforeItIsVerified", &Mutations::half_exposed,
            "nobody has verified"},
    Mistake{"ARunnerLeavesContainersBehind", &Mutations::containers_stay, "two live pods"},
    Mistake{"AnAgentWritesThoughNothingHappens", &Mutations::heartbeats, "writes at rest"},
    Mistake{"AWatchLosesDeletions", &Mutations::deletions_are_lost, "converge"},
    Mistake{"AConflictIsIgnored", &Mutations::versions_ignored, "goes back"},
    Mistake{"AnOperatorTellsOfAUrlTooEarly", &Mutations::url_at_once, "never answered"},
    Mistake{"ACloudPodIsReadyBeforeItsVersionIsThere", &Mutations::pods_are_ready_at_once,
            "never answered", Cast{.cloud_model = true}},
    Mistake{"AWorkListLosesItsTiers", &Mutations::tiers_are_lost, "URL of tier cloud",
            Cast{.joint = true}},
    Mistake{"ANodeLosesRowsOfADataset", &Mutations::rows_are_lost, "samples are counted",
            Cast{.dataset = true}}};
// Full schedules seldom get far enough to lose a result or a count.
const Mistake kMistakesInShortOnes[] = {
    Mistake{"AnAgentForgetsAResult", &Mutations::results_are_lost, "was acknowledged",
            Cast{.worker = true}},
    Mistake{"AServerIsCountedTwice", &Mutations::counts_twice, "inferences are counted",
            Cast{.joint = true}}};

const auto kName = [](const auto& test) { return std::string(test.param.name); };
INSTANTIATE_TEST_SUITE_P(Checks, KnownMistake, testing::ValuesIn(kMistakes), kName);
INSTANTIATE_TEST_SUITE_P(Checks, KnownMistakeInShortSchedules, testing::ValuesIn(kMistakes), kName);
INSTANTIATE_TEST_SUITE_P(MoreChecks, KnownMistakeInShortSchedules,
                         testing::ValuesIn(kMistakesInShortOnes), kName);

}  // namespace
}  // namespace varda::sim
