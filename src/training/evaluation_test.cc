#include "training/evaluation.h"

#include <gtest/gtest.h>

namespace varda::training {
namespace {

namespace evaluation_test {

TEST(WorstSamples, TwelveWithTheLargestLossStayInOrder) {
  std::vector<Worst> worst;
  for (std::size_t i = 0; i < 100; ++i)
    offer(worst, {.index = i, .loss = static_cast<double>(i * 37 % 50)});
  ASSERT_EQ(worst.size(), kWorstMax);
  for (std::size_t i = 0; i < kWorstMax; ++i) {
    EXPECT_EQ(worst[i].loss, static_cast<double>(49 - i / 2));
    // Each loss occurs twice; the sample that came first is first.
    if (i % 2 == 1) {
      EXPECT_EQ(worst[i].index, worst[i - 1].index + 50);
    }
  }
  EXPECT_TRUE(is_wanted(worst, 44.5));
  EXPECT_FALSE(is_wanted(worst, 44));
}

TEST(Evaluation, WrongMembersAreCorrupt) {
  const auto json = to_json(Evaluation{{{"loss", 1}}, {{1, 0}, {0, 1}}, {{.index = 3}}});
  EXPECT_TRUE(parse_evaluation(json).ok());
  const auto code = [&](const char* path, codec::Json value) {
    codec::Json changed = json;
    changed.set(path, std::move(value));
    return parse_evaluation(changed).error().code();
  };
  EXPECT_EQ(code("metrics", codec::Json::object({{"loss", "x"}})), Code::kCorrupt);
  EXPECT_EQ(code("confusion", codec::Json::array({codec::Json::array({1, 2})})), Code::kCorrupt);
  EXPECT_EQ(code("confusion", codec::Json::array({codec::Json::array({-1})})), Code::kCorrupt);
  EXPECT_EQ(code("worst", codec::Json::array({codec::Json::object({{"index", -1}})})),
            Code::kCorrupt);
  EXPECT_EQ(parse_epoch_record(codec::Json::object({{"epoch", 1}})).error().code(), Code::kCorrupt);
}

}  // namespace evaluation_test
}  // namespace
}  // namespace varda::training
