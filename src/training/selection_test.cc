// The ledger: which samples train, also after kills and power cuts.
#include "training/selection.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "codec/json.h"
#include "os/testing/crash_campaign.h"
#include "os/testing/memory_file_system.h"
#include "training/incremental_task.h"
#include "training/reservoir.h"

namespace varda::training {
namespace {

namespace selection_test {

using os::testing::CrashCampaign;
using os::testing::CrashingFileSystem;
using os::testing::MemoryFileSystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const os::Path kDirectory = "/job";

std::vector<SampleId> ids(int first, int count) {
  std::vector<SampleId> out;
  for (int i = first; i < first + count; ++i)
    out.push_back(sample_id("good/" + std::to_string(i) + ".png"));
  return out;
}

std::vector<SampleId> joined(std::vector<SampleId> a, const std::vector<SampleId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

IncrementalTask round(std::int64_t number, std::int64_t attempt = 1) {
  IncrementalTask out;
  out.round = number;
  out.attempt = attempt;
  return out;
}

Selection selected(os::FileSystem& fs, const IncrementalTask& task,
                   const std::vector<SampleId>& present) {
  auto out = select(fs, kDirectory, task, present);
  EXPECT_TRUE(out.ok()) << out.error();
  return out.ok() ? *out : Selection{};
}

std::vector<std::size_t> all_of(const Selection& selection) {
  std::vector<std::size_t> out = selection.train;
  out.insert(out.end(), selection.evaluate.begin(), selection.evaluate.end());
  std::ranges::sort(out);
  return out;
}

TEST(Selection, AllSamplesOfTheFirstRoundAreNewAndSplitByTheProbability) {
  MemoryFileSystem fs;
  const Selection out = selected(fs, round(1), ids(0, 2000));
  EXPECT_EQ(out.train.size() + out.evaluate.size(), 2000u);
  EXPECT_NEAR(static_cast<double>(out.train.size()), 1600, 90);  // five standard deviations
  EXPECT_THAT(out.old, IsEmpty());
}

TEST(Selection, SplitOfASampleDependsOnSeedAndPlaceAlone) {
  MemoryFileSystem first, second;
  const auto many = ids(0, 100);
  const Selection together = selected(first, round(1), many);
  std::vector<SampleId> reversed(many.rbegin(), many.rend());
  const Selection other = selected(second, round(7), reversed);
  std::vector<std::size_t> mirrored;
  for (const std::size_t i : other.train) mirrored.push_back(99 - i);
  std::ranges::sort(mirrored);
  EXPECT_EQ(mirrored, together.train);
  IncrementalTask seeded = round(8);
  seeded.seed = 2;
  EXPECT_NE(selected(second, seeded, many).train, together.train);
}

TEST(Selection, ConsumedSamplesAreNeverSelectedAgainAndBecomeOld) {
  MemoryFileSystem fs;
  const Selection first = selected(fs, round(1), ids(0, 50));
  IncrementalTask next = round(2);
  next.consumed.add(1);
  const Selection second = selected(fs, next, joined(ids(0, 50), ids(50, 10)));
  EXPECT_THAT(all_of(second), ElementsAre(50, 51, 52, 53, 54, 55, 56, 57, 58, 59));
  EXPECT_EQ(second.old, first.train) << "samples that evaluate are never replayed";
}

TEST(Selection, RefusedSamplesAreUsedButNeverOld) {
  MemoryFileSystem fs;
  selected(fs, round(1), ids(0, 50));
  IncrementalTask next = round(2);
  next.refused.add(1);
  const Selection second = selected(fs, next, ids(0, 60));
  EXPECT_THAT(all_of(second), SizeIs(10));
  EXPECT_THAT(second.old, IsEmpty());
  // A rollback moves a round from consumed to refused.
  next.consumed.add(1);
  EXPECT_THAT(selected(fs, next, ids(0, 60)).old, IsEmpty());
}

TEST(Selection, LedgerRemembersRefusedRoundsThatLaterAssignmentsForget) {
  MemoryFileSystem fs;
  selected(fs, round(1), ids(0, 50));
  IncrementalTask next = round(2);
  next.refused.add(1);
  selected(fs, next, ids(0, 60));
  IncrementalTask later = round(3);
  later.consumed.add(1);
  later.consumed.add(2);
  const Selection third = selected(fs, later, ids(0, 70));
  EXPECT_THAT(third.old, ::testing::Each(::testing::Ge(50u)));
  EXPECT_THAT(third.old, ::testing::Not(IsEmpty()));
  EXPECT_THAT(all_of(third), SizeIs(10));
}

TEST(Selection, FailedRoundGivesItsSamplesBack) {
  MemoryFileSystem fs;
  const Selection first = selected(fs, round(1), ids(0, 50));
  const Selection second = selected(fs, round(2), ids(0, 60));
  EXPECT_THAT(all_of(second), SizeIs(60));
  for (const std::size_t i : first.train)
    EXPECT_TRUE(std::ranges::binary_search(second.train, i)) << i;
}

TEST(Selection, RestartedRoundIgnoresSamplesThatArrivedMeanwhile) {
  MemoryFileSystem fs;
  const Selection first = selected(fs, round(1), ids(0, 50));
  const std::string ledger = os::read_file(fs, kDirectory / kLedgerFile).value();
  const Selection again = selected(fs, round(1), joined(ids(0, 50), ids(500, 50)));
  EXPECT_EQ(again.train, first.train);
  EXPECT_EQ(again.evaluate, first.evaluate);
  EXPECT_EQ(os::read_file(fs, kDirectory / kLedgerFile).value(), ledger);
}

TEST(Selection, NextAttemptSelectsAgain) {
  MemoryFileSystem fs;
  selected(fs, round(1), ids(0, 50));
  EXPECT_THAT(all_of(selected(fs, round(1, 2), ids(0, 70))), SizeIs(70));
}

TEST(Selection, MissingSampleOfTheRoundMeansANewSelection) {
  MemoryFileSystem fs;
  selected(fs, round(1), ids(0, 50));
  EXPECT_THAT(all_of(selected(fs, round(1), ids(1, 60))), SizeIs(60));
}

TEST(Selection, WithoutNewSamplesTheRoundHasNoEntry) {
  MemoryFileSystem fs;
  selected(fs, round(1), ids(0, 50));
  IncrementalTask next = round(2);
  next.consumed.add(1);
  const Selection none = selected(fs, next, ids(0, 50));
  EXPECT_THAT(all_of(none), IsEmpty());
  EXPECT_EQ(recall(fs, kDirectory, next, ids(0, 50)).error().code(), Code::kNotFound);
}

TEST(Selection, OneSampleTrains) {
  for (int i = 0; i < 40; ++i) {
    MemoryFileSystem fs;
    EXPECT_THAT(selected(fs, round(1), ids(i, 1)).train, SizeIs(1)) << i;
    MemoryFileSystem other;
    IncrementalTask rare = round(1);
    rare.train_probability = 1e-9;
    const Selection two = selected(other, rare, ids(i, 2));
    EXPECT_THAT(two.train, SizeIs(1));
    EXPECT_THAT(two.evaluate, SizeIs(1));
  }
}

TEST(Selection, EvaluationRecallsTheSelectionOfAnyAttempt) {
  MemoryFileSystem fs;
  const Selection first = selected(fs, round(1), ids(0, 50));
  const auto recalled = recall(fs, kDirectory, round(1, 3), ids(0, 90));
  ASSERT_TRUE(recalled.ok()) << recalled.error();
  EXPECT_EQ(recalled->evaluate, first.evaluate);
}

TEST(Selection, RoundBeforeTheLastOneIsRefused) {
  MemoryFileSystem fs;
  selected(fs, round(2), ids(0, 20));
  const auto out = select(fs, kDirectory, round(1), ids(0, 20));
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().message(), "round 1 is over: round 2 has begun");
}

TEST(Selection, RoundThatIsOverIsRefused) {
  MemoryFileSystem fs;
  IncrementalTask task = round(3);
  task.consumed.add(1, 3);
  const auto out = select(fs, kDirectory, task, ids(0, 5));
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().code(), Code::kInvalid);
}

TEST(Selection, DamagedLedgerIsAnErrorWithARemedy) {
  MemoryFileSystem fs;
  selected(fs, round(1), ids(0, 50));
  std::string bytes = os::read_file(fs, kDirectory / kLedgerFile).value();
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(os::write_file_atomically(fs, kDirectory / kLedgerFile, bytes).ok());
  const auto out = select(fs, kDirectory, round(2), ids(0, 50));
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().code(), Code::kCorrupt);
  EXPECT_THAT(out.error().message(), HasSubstr("ledger.json"));
}

TEST(Ledger, BytesReadBackAndAreElevenASample) {
  MemoryFileSystem fs;
  selected(fs, round(1), ids(0, 3000));
  IncrementalTask next = round(2);
  next.consumed.add(1);
  selected(fs, next, ids(0, 4000));
  const std::string bytes = os::read_file(fs, kDirectory / kLedgerFile).value();
  const auto ledger = Ledger::decode(bytes);
  ASSERT_TRUE(ledger.ok()) << ledger.error();
  EXPECT_EQ(ledger->samples(), 4000u);
  EXPECT_EQ(ledger->encode(), bytes);
  EXPECT_LT(bytes.size(), 11u * 4000 + 600);
}

/// Three rounds: the second fails, the third has consumed the first. Returns the samples of the
/// third, by place.
Result<std::set<SampleId>> three_rounds(os::FileSystem& fs) {
  // A ledger with a later round refuses these, as the operator no longer asks for them.
  (void)select(fs, kDirectory, round(1), ids(0, 20));
  IncrementalTask second = round(2);
  second.consumed.add(1);
  (void)select(fs, kDirectory, second, ids(0, 30));
  IncrementalTask third = round(3);
  third.consumed.add(1);
  const auto present = ids(0, 40);
  TRY(const Selection chosen, select(fs, kDirectory, third, present));
  std::set<SampleId> out;
  for (const std::size_t i : all_of(chosen)) out.insert(present[i]);
  return out;
}

TEST(LedgerCrash, PowerCutAtAnyCallLosesAndRepeatsNoSample) {
  MemoryFileSystem whole;
  const auto expected = three_rounds(whole);
  ASSERT_TRUE(expected.ok());
  ASSERT_EQ(expected->size(), 20u);
  CrashCampaign campaign("training_test --gtest_filter=LedgerCrash.*", 300);
  while (campaign.next_seed()) {
    CrashingFileSystem fs;
    std::vector<std::size_t> promised;  // the selection that select() returned last
    std::int64_t promised_round = 0;
    std::uint64_t promises = 0;
    bool inside = false;
    fs.on_call([&](std::string_view, const os::Path&) {
      if (inside || campaign.over()) return Status();
      inside = true;
      campaign.point(fs, promises, [&](CrashingFileSystem& left, Rng&) -> std::string {
        // A training began with what select() returned, so the disk must still have it.
        if (promised_round == 1) {
          const auto again = select(left, kDirectory, round(1), ids(0, 35));
          if (!again.ok()) return again.error().message();
          if (again->train != promised) return "round 1 selects other samples after the crash";
        }
        const auto after = three_rounds(left);
        if (!after.ok()) return after.error().message();
        return *after == *expected ? "" : "round 3 has other samples after the crash";
      });
      inside = false;
      return Status();
    });
    const auto first = select(fs, kDirectory, round(1), ids(0, 20));
    ASSERT_TRUE(first.ok());
    promised = first->train;
    promised_round = 1;
    ++promises;
    // The next call sees the promise.
    ASSERT_TRUE(fs.stat(kDirectory).ok());
    promised_round = 0;
    ++promises;
    IncrementalTask second = round(2);
    second.consumed.add(1);
    ASSERT_TRUE(select(fs, kDirectory, second, ids(0, 30)).ok());
    IncrementalTask third = round(3);
    third.consumed.add(1);
    ASSERT_TRUE(select(fs, kDirectory, third, ids(0, 40)).ok());
    fs.on_call(nullptr);
  }
  EXPECT_EQ(campaign.failure(), "");
}

TEST(RoundSet, KeepsRangesShort) {
  RoundSet set;
  for (const std::int64_t one : {5, 3, 4, 9, 1}) set.add(one);
  EXPECT_EQ(codec::write_json(to_json(set)), "[1,[3,5],9]");
  set.add(2);
  set.add(6, 8);
  EXPECT_EQ(codec::write_json(to_json(set)), "[[1,9]]");
  set.remove(4);
  EXPECT_EQ(codec::write_json(to_json(set)), "[[1,3],[5,9]]");
  EXPECT_FALSE(set.contains(4));
  EXPECT_TRUE(set.contains(5));
}

TEST(IncrementalTask, AssignmentIsRead) {
  const auto json = codec::parse_json(
      R"({"round": 3, "attempt": 2, "stage": "Eval", "consumed": [1, [5, 7]], "refused": [2],
          "trainProb": 0.5, "seed": 9, "base": {"version": "4"}, "baseline": 5, "later": true})");
  const auto task = parse_incremental_task(*json);
  ASSERT_TRUE(task.ok()) << task.error();
  EXPECT_EQ(task->round, 3);
  EXPECT_EQ(task->attempt, 2);
  EXPECT_EQ(task->stage, IncrementalTask::Stage::kEval);
  EXPECT_TRUE(task->consumed.contains(6));
  EXPECT_TRUE(task->refused.contains(2));
  EXPECT_EQ(task->train_probability, 0.5);
  EXPECT_EQ(task->seed, 9u);
  EXPECT_EQ(task->base_version, "4");
  EXPECT_EQ(task->baseline_version, "5");
}

TEST(IncrementalTask, WrongMemberIsNamed) {
  const struct {
    const char *text, *name;
  } cases[] = {{"{}", "round"},
               {R"({"round": 0})", "round"},
               {R"({"round": 1.5})", "round"},
               {R"({"round": 1, "attempt": "2"})", "attempt"},
               {R"({"round": 1, "stage": "Deploy"})", "stage"},
               {R"({"round": 1, "consumed": 3})", "consumed"},
               {R"({"round": 1, "refused": [[2, 1]]})", "refused"},
               {R"({"round": 1, "trainProb": 0})", "trainProb"},
               {R"({"round": 1, "trainProb": 1.1})", "trainProb"},
               {R"({"round": 1, "seed": -1})", "seed"}};
  for (const auto& one : cases) {
    const auto task = parse_incremental_task(*codec::parse_json(one.text));
    ASSERT_FALSE(task.ok()) << one.text;
    EXPECT_THAT(task.error().message(), HasSubstr(one.name)) << one.text;
  }
}

TEST(Reservoir, ClassesTakeTurns) {
  std::vector<std::int64_t> labels(100, 0);
  for (int i = 0; i < 10; ++i) labels[static_cast<std::size_t>(i)] = 1;
  labels[50] = 2;
  const auto chosen = reservoir(ids(0, 100), labels, {.samples = 31});
  std::map<std::int64_t, int> counts;
  for (const std::size_t i : chosen) ++counts[labels[i]];
  EXPECT_EQ(counts[2], 1);
  EXPECT_EQ(counts[1], 10);
  EXPECT_EQ(counts[0], 20);
  const auto limited = reservoir(ids(0, 100), labels, {.samples = 31, .per_class = 5});
  EXPECT_THAT(limited, SizeIs(11));
}

TEST(Reservoir, GrowingPoolKeepsMostMembers) {
  const std::vector<std::int64_t> none;
  const auto before = reservoir(ids(0, 1000), none, {.samples = 100});
  const auto after = reservoir(ids(0, 1100), none, {.samples = 100});
  std::vector<std::size_t> common;
  std::ranges::set_intersection(before, after, std::back_inserter(common));
  EXPECT_GT(common.size(), 75u);
  EXPECT_LT(common.size(), 100u);
  EXPECT_EQ(reservoir(ids(0, 1000), none, {.samples = 100}), before);
  EXPECT_NE(reservoir(ids(0, 1000), none, {.samples = 100, .seed = 2}), before);
}

TEST(Reservoir, EachSampleHasTheSameChance) {
  std::vector<int> hits(50);
  for (std::uint64_t seed = 0; seed < 2000; ++seed)
    for (const std::size_t i : reservoir(ids(0, 50), {}, {.samples = 10, .seed = seed})) ++hits[i];
  for (const int one : hits) EXPECT_NEAR(one, 400, 90);  // five standard deviations
}

}  // namespace selection_test

}  // namespace
}  // namespace varda::training
