// VARDA_LEARNING_SCHEDULES is the number of schedules; VARDA_LEARNING_SEED the first seed.
#include <cstdlib>
#include <gtest/gtest.h>

#include "base/text.h"
#include "incremental/testing/round_schedule.h"

namespace varda::incremental {
namespace {
namespace round_machine_sim_test {

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : parse_integer<std::uint64_t>(text).value_or(otherwise);
}

TEST(LearningSchedules, KeepTheirPromises) {
  const std::uint64_t first = number_from("VARDA_LEARNING_SEED", 1);
  const std::uint64_t schedules = number_from("VARDA_LEARNING_SCHEDULES", 2000);
  schedule::Result sum;
  for (std::uint64_t seed = first; seed < first + schedules; ++seed) {
    const schedule::Result result = schedule::run(seed);
    ASSERT_EQ(result.problem, "") << "VARDA_LEARNING_SEED=" << seed
                                  << " VARDA_LEARNING_SCHEDULES=1 incremental_test "
                                     "--gtest_filter=LearningSchedules.*";
    sum.accepted += result.accepted;
    sum.refused += result.refused;
    sum.failed += result.failed;
    sum.rolled_back += result.rolled_back;
    sum.restarts += result.restarts;
    sum.conflicts += result.conflicts;
  }
  RecordProperty("accepted", static_cast<int>(sum.accepted));
  RecordProperty("refused", static_cast<int>(sum.refused));
  RecordProperty("failed", static_cast<int>(sum.failed));
  RecordProperty("rolled_back", static_cast<int>(sum.rolled_back));
  if (schedules < 1000) return;
  // The schedules reach what they are for.
  EXPECT_GT(sum.accepted, schedules);
  EXPECT_GT(sum.refused, schedules / 4);
  EXPECT_GT(sum.failed, schedules / 20);
  EXPECT_GT(sum.rolled_back, schedules / 50);
  EXPECT_GT(sum.restarts, schedules);
  EXPECT_GT(sum.conflicts, schedules / 20);
}

}  // namespace round_machine_sim_test
}  // namespace
}  // namespace varda::incremental
