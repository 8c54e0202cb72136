// VARDA_ROUND_SCHEDULES is the number of schedules; VARDA_ROUND_SEED the first seed.
#include <cstdlib>
#include <gtest/gtest.h>

#include "base/text.h"
#include "federated/testing/round_schedule.h"

namespace varda::federated {
namespace {
namespace round_machine_sim_test {

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : parse_integer<std::uint64_t>(text).value_or(otherwise);
}

TEST(RoundSchedules, KeepTheirPromises) {
  const std::uint64_t first = number_from("VARDA_ROUND_SEED", 1);
  const std::uint64_t schedules = number_from("VARDA_ROUND_SCHEDULES", 2000);
  std::size_t restarts = 0, failed = 0, folded = 0, repeats = 0;
  for (std::uint64_t seed = first; seed < first + schedules; ++seed) {
    const schedule::Result result = schedule::run(seed);
    ASSERT_EQ(result.problem, "") << "VARDA_ROUND_SEED=" << seed
                                  << " VARDA_ROUND_SCHEDULES=1 federated_test "
                                     "--gtest_filter=RoundSchedules.*";
    restarts += result.restarts;
    failed += result.failed ? 1 : 0;
    folded += result.folded;
    repeats += result.repeats;
  }
  if (schedules < 1000) return;
  // The schedules reach what they are for.
  EXPECT_GT(restarts, schedules);
  EXPECT_GT(failed, schedules / 100);
  EXPECT_LT(failed, schedules / 2);
  EXPECT_GT(folded, schedules / 20);
  EXPECT_GT(repeats, schedules / 4);
}

}  // namespace round_machine_sim_test
}  // namespace
}  // namespace varda::federated
