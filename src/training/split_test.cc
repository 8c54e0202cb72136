#include "training/split.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <set>

namespace varda::training {
namespace {

namespace split_test {

TEST(HoldOut, EachClassGivesItsPart) {
  std::vector<std::int64_t> labels;
  for (int i = 0; i < 200; ++i) labels.push_back(i < 150 ? 0 : i < 199 ? 1 : 2);
  const Split split = hold_out(labels.size(), labels, 0.1, 1);
  std::map<std::int64_t, int> held;
  for (const std::size_t index : split.evaluation) ++held[labels[index]];
  // The third class has one sample, which stays in the training data.
  EXPECT_EQ(held, (std::map<std::int64_t, int>{{0, 15}, {1, 5}}));
  std::set<std::size_t> all(split.train.begin(), split.train.end());
  all.insert(split.evaluation.begin(), split.evaluation.end());
  EXPECT_EQ(all.size(), 200u);
  EXPECT_EQ(split.train.size() + split.evaluation.size(), 200u);
  EXPECT_TRUE(std::is_sorted(split.train.begin(), split.train.end()));
}

TEST(HoldOut, SeedChoosesTheSamples) {
  const auto held = [](std::uint64_t seed) { return hold_out(100, {}, 0.2, seed).evaluation; };
  EXPECT_EQ(held(1).size(), 20u);
  EXPECT_EQ(held(1), held(1));
  EXPECT_NE(held(1), held(2));
}

TEST(HoldOut, SmallDataGiveOneAndKeepOne) {
  EXPECT_EQ(hold_out(2, {}, 0.1, 1).evaluation.size(), 1u);
  EXPECT_EQ(hold_out(2, {}, 0.9, 1).train.size(), 1u);
  EXPECT_TRUE(hold_out(1, {}, 0.9, 1).evaluation.empty());
  EXPECT_TRUE(hold_out(0, {}, 0.5, 1).train.empty());
}

}  // namespace split_test
}  // namespace
}  // namespace varda::training
