#include "base/testing/eventually.h"

#include <atomic>
#include <gtest/gtest.h>
#include <thread>

namespace varda {
namespace {

TEST(Eventually, SucceedsOnceTheConditionHolds) {
  std::atomic<bool> ready{false};
  const std::jthread other([&] { ready = true; });
  EXPECT_TRUE(eventually("the other thread is ready", [&] { return ready.load(); }));
}

TEST(Eventually, FailsAtItsLimitAndNamesTheCondition) {
  int looks = 0;
  const auto result = eventually(
      "the node is connected", [&] { return ++looks > 1'000'000; }, std::chrono::milliseconds(5));
  EXPECT_FALSE(result);
  EXPECT_STREQ(result.message(), "waited 0 s in vain: the node is connected");
  EXPECT_GE(looks, 1);
}

TEST(Eventually, ConditionIsCheckedEvenIfTheLimitIsZero) {
  int looks = 0;
  EXPECT_TRUE(eventually(
      "anything", [&] { return ++looks == 1; }, Duration::zero()));
}

}  // namespace
}  // namespace varda
