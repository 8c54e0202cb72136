#include "hosting/replacement_pauses.h"

#include <gtest/gtest.h>

namespace varda::hosting {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

const meta::ObjectKey kModel{"default", "digits"};

TEST(ReplacementPauses, PauseDoublesUpToFiveMinutesForShortLivedPods) {
  ReplacementPauses pauses;
  const SteadyTime now{};
  Duration expected = seconds(5);
  for (int pod = 0; pod < 10; ++pod) {
    EXPECT_EQ(pauses.left(kModel, std::to_string(pod), seconds(1), now), expected) << pod;
    expected = std::min<Duration>(expected * 2, minutes(5));
  }
}

TEST(ReplacementPauses, PauseEndIsConstantAcrossCalls) {
  ReplacementPauses pauses;
  const SteadyTime now{};
  EXPECT_EQ(pauses.left(kModel, "a", seconds(1), now), seconds(5));
  EXPECT_EQ(pauses.left(kModel, "a", seconds(4), now + seconds(3)), seconds(2));
  EXPECT_EQ(pauses.left(kModel, "a", seconds(7), now + seconds(6)), seconds(-1));
}

TEST(ReplacementPauses, LongLivedPodOrOtherModelResetsPause) {
  ReplacementPauses pauses;
  const SteadyTime now{};
  for (const char* pod : {"a", "b", "c"}) (void)pauses.left(kModel, pod, seconds(1), now);
  EXPECT_EQ(pauses.left({"default", "other"}, "x", seconds(1), now), seconds(5));
  EXPECT_EQ(pauses.left(kModel, "d", minutes(11), now), seconds(5));
  pauses.forget(kModel);
  EXPECT_EQ(pauses.left(kModel, "e", seconds(1), now), seconds(5));
}

}  // namespace
}  // namespace varda::hosting
