#include "agent/datasets/schedule.h"

#include <gtest/gtest.h>

namespace varda::agent::datasets {
namespace schedule_test {

using namespace std::chrono_literals;
using Work = Schedule::Work;
using Result = Schedule::Done::Result;
using Done = Schedule::Done;

const SteadyTime kStart = SteadyTime(1000h);

class DatasetScheduleTest : public ::testing::Test {
 protected:
  /// Counts dataset 1 completely at kStart.
  void counted(Schedule::Id id, bool watched = true, bool folder = false) {
    schedule.add(id, 0s, std::nullopt, kStart);
    ASSERT_TRUE(schedule.take(kStart));
    schedule.done(id,
                  {.result = Result::kCounted, .whole = true, .folder = folder, .watched = watched},
                  kStart);
  }
  /// Expects the next work at `at`, after kStart.
  void expect_next(SteadyTime at, Work work) {
    ASSERT_EQ(schedule.next(), at);
    EXPECT_FALSE(schedule.take(at - 1ns));
    const auto job = schedule.take(at);
    ASSERT_TRUE(job);
    EXPECT_EQ(job->work, work);
  }

  Schedule schedule{Times()};
};

TEST_F(DatasetScheduleTest, NewDatasetIsFullyCountedAtOnce) {
  schedule.add(1, 0s, std::nullopt, kStart);
  ASSERT_LE(*schedule.next(), kStart);
  const auto job = schedule.take(kStart);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->work, Work::kRecount);
  EXPECT_FALSE(schedule.next()) << "while it is busy";
}

TEST_F(DatasetScheduleTest, RestoredDatasetKeepsItsRecountAge) {
  schedule.add(1, 0s, 23h, kStart);
  EXPECT_EQ(schedule.take(kStart)->work, Work::kCount);
  schedule.done(1, {.watched = true}, kStart);
  EXPECT_EQ(schedule.age(1, kStart), 23h);
  Schedule late{Times()};
  late.add(1, 0s, 25h, kStart);
  EXPECT_EQ(late.take(kStart)->work, Work::kRecount);
}

TEST_F(DatasetScheduleTest, ChangeIsCountedAfterQuietOrMaximumDelay) {
  counted(1);
  schedule.changed(1, kStart + 5s);
  EXPECT_EQ(schedule.next(), kStart + 5200ms);
  schedule.changed(1, kStart + 5150ms);
  EXPECT_EQ(schedule.next(), kStart + 5350ms);
  schedule.changed(1, kStart + 5500ms);
  expect_next(kStart + 5600ms, Work::kCount);
  // Changes during a count are left to the next count.
  schedule.changed(1, kStart + 5650ms);
  EXPECT_FALSE(schedule.next());
  schedule.done(1, {.watched = true}, kStart + 5700ms);
  expect_next(kStart + 5850ms, Work::kCount);
}

TEST_F(DatasetScheduleTest, LookPeriodDependsOnWatchFolderAndDuration) {
  struct Case {
    bool watched, folder;
    Duration took, next;
  };
  for (const Case& one :
       {Case{true, false, 0s, 60s}, Case{true, true, 0s, 1h}, Case{false, false, 0s, 1s},
        Case{false, true, 0s, 10s}, Case{false, true, 20s, 200s}}) {
    Schedule each{Times()};
    each.add(1, 0s, std::nullopt, kStart);
    ASSERT_TRUE(each.take(kStart));
    each.done(1, {.whole = true, .folder = one.folder, .watched = one.watched, .took = one.took},
              kStart);
    EXPECT_EQ(each.next(), kStart + one.next);
    EXPECT_EQ(each.take(kStart + one.next)->work, Work::kLook);
  }
}

TEST_F(DatasetScheduleTest, LongCountDelaysNextByTwiceItsDuration) {
  schedule.add(1, 0s, std::nullopt, kStart);
  ASSERT_TRUE(schedule.take(kStart));
  schedule.done(1, {.whole = true, .folder = true, .watched = true, .took = 5s}, kStart + 5s);
  schedule.changed(1, kStart + 6s);
  expect_next(kStart + 15s, Work::kCount);
}

TEST_F(DatasetScheduleTest, RecountRunsAfterEachPeriod) {
  counted(1);
  schedule.set_recount(1, 30s);
  expect_next(kStart + 30s, Work::kRecount);
  schedule.done(1, {.whole = true, .watched = true}, kStart + 40s);
  // A change does not delay a recount, and one just before it needs no separate count.
  schedule.changed(1, kStart + 69900ms);
  EXPECT_EQ(schedule.take(kStart + 70s)->work, Work::kRecount);
  // After a failed recount, the next count is a whole one, after a backoff.
  schedule.done(1, {.result = Result::kUnreadable, .watched = true}, kStart + 70s);
  expect_next(kStart + 71s, Work::kRecount);
  schedule.done(1, {.result = Result::kUnreadable, .watched = true}, kStart + 71s);
  expect_next(kStart + 73s, Work::kRecount);
}

TEST_F(DatasetScheduleTest, MaximumRecountPeriodDoesNotOverflow) {
  counted(1);
  schedule.set_recount(1, std::chrono::seconds::max());
  expect_next(kStart + 60s, Work::kLook);
}

TEST_F(DatasetScheduleTest, OtherDatasetRunsBetweenPortions) {
  schedule.add(1, 0s, std::nullopt, kStart);
  ASSERT_EQ(schedule.take(kStart)->id, 1U);
  schedule.add(2, 0s, std::nullopt, kStart + 1s);
  schedule.done(1, {.result = Result::kPortion}, kStart + 10s);
  EXPECT_EQ(schedule.take(kStart + 10s)->id, 2U);
  schedule.done(2, {.whole = true, .watched = true}, kStart + 11s);
  const auto again = schedule.take(kStart + 11s);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->id, 1U);
  EXPECT_EQ(again->work, Work::kRecount) << "still the same";
}

TEST_F(DatasetScheduleTest, ChangeBetweenPortionsRecountsFolderButNotFile) {
  for (const bool folder : {false, true}) {
    const Schedule::Id id = folder ? 2 : 1;
    schedule.add(id, 0s, std::nullopt, kStart);
    ASSERT_TRUE(schedule.take(kStart));
    schedule.done(id, {.result = Result::kPortion, .folder = folder}, kStart);
    schedule.changed(id, kStart);
    EXPECT_TRUE(schedule.changed_meanwhile(id));
    ASSERT_TRUE(schedule.take(kStart));
    EXPECT_EQ(schedule.changed_meanwhile(id), folder)
        << "what is left of a file is read later than it changed";
    schedule.done(id, {.whole = true, .folder = folder, .watched = true}, kStart);
    if (folder) {
      expect_next(kStart + 200ms, Work::kCount);
    } else {
      schedule.remove(id);
    }
  }
}

TEST_F(DatasetScheduleTest, FolderDelayCoversAllPortionsOfTheCount) {
  schedule.add(1, 0s, std::nullopt, kStart);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(schedule.take(kStart));
    schedule.done(1, {.result = Result::kPortion, .folder = true, .took = 4s}, kStart);
  }
  ASSERT_TRUE(schedule.take(kStart));
  schedule.changed(1, kStart);
  schedule.done(1, {.whole = true, .folder = true, .watched = true, .took = 3s}, kStart);
  expect_next(kStart + 30s, Work::kCount);  // twice 15 s
}

TEST_F(DatasetScheduleTest, RemovedDatasetIsIgnored) {
  counted(1);
  schedule.changed(1, kStart);
  ASSERT_TRUE(schedule.take(kStart + 200ms));
  schedule.remove(1);
  schedule.done(1, {}, kStart);
  schedule.changed(1, kStart);
  EXPECT_FALSE(schedule.next());
  EXPECT_FALSE(schedule.age(1, kStart));
}

}  // namespace schedule_test
}  // namespace varda::agent::datasets
