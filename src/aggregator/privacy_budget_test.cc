#include "aggregator/privacy_budget.h"

#include <cmath>
#include <gtest/gtest.h>

namespace varda::aggregator {
namespace {

federated::PrivacySettings settings_of(double clip, double noise) {
  federated::PrivacySettings out;
  out.clip = clip;
  out.noise_multiplier = noise;
  return out;
}

TEST(PrivacyBudget, NoiseFollowsTheSensitivityAndTheRound) {
  const auto budget = PrivacyBudget::begin(settings_of(2, 1.5));
  ASSERT_TRUE(budget.ok());
  const auto first = budget->mean(1, 10), again = budget->mean(1, 10), next = budget->mean(2, 10);
  ASSERT_TRUE(first.ok() && again.ok() && next.ok());
  EXPECT_DOUBLE_EQ((*first)->deviation, 0.3);
  EXPECT_EQ((*first)->clients, 10U);
  EXPECT_EQ((*first)->seed, (*again)->seed);
  EXPECT_NE((*first)->seed, (*next)->seed);
}

TEST(PrivacyBudget, ContinuesAfterARestart) {
  auto settings = settings_of(1, 2);
  settings.adaptive_clip = federated::PrivacySettings::AdaptiveClip{};
  auto budget = PrivacyBudget::begin(settings);
  ASSERT_TRUE(budget.ok());
  for (int round = 1; round <= 3; ++round) ASSERT_TRUE(budget->spend(round, {100, 100, 100}).ok());
  const auto restored = PrivacyBudget::restore(settings, budget->to_json());
  ASSERT_TRUE(restored.ok()) << restored.error();
  EXPECT_EQ(restored->epsilon(), budget->epsilon());
  EXPECT_EQ(restored->to_json(), budget->to_json());
  const auto before = budget->mean(4, 100), after = restored->mean(4, 100);
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ((*before)->seed, (*after)->seed);
  EXPECT_LT((*before)->clip, 1);  // all updates were whole
}

TEST(PrivacyBudget, BrokenStatesAreRefused) {
  const auto settings = settings_of(1, 1);
  const codec::Json good = PrivacyBudget::begin(settings)->to_json();
  for (const char* member : {"seed", "sums"}) {
    codec::Json broken = good;
    broken.erase(member);
    EXPECT_EQ(PrivacyBudget::restore(settings, broken).error().code(), Code::kCorrupt) << member;
  }
}

TEST(PrivacyBudget, EndsBeforeTheRoundThatWouldSpendTooMuch) {
  auto budget = PrivacyBudget::begin(settings_of(1, 2));
  ASSERT_TRUE(budget.ok());
  int rounds = 0;
  while (budget->affords_another(8.0)) ASSERT_TRUE(budget->spend(++rounds, {5, 10, 10}).ok());
  EXPECT_GT(rounds, 3);
  EXPECT_LE(budget->epsilon(), 8);
  ASSERT_TRUE(budget->spend(rounds, {5, 10, 10}).ok());
  EXPECT_GT(budget->epsilon(), 8);
  EXPECT_TRUE(budget->affords_another(std::nullopt));
}

TEST(PrivacyBudget, LocalNoiseIsTheClients) {
  auto settings = settings_of(1, 2);
  settings.mode = federated::PrivacyMode::kLocal;
  auto budget = PrivacyBudget::begin(settings);
  ASSERT_TRUE(budget.ok());
  EXPECT_FALSE(budget->mean(1, 10)->has_value());
  ASSERT_TRUE(budget->spend(1, {0, 10, 10}).ok());
  EXPECT_GT(budget->epsilon(), 0);
}

}  // namespace
}  // namespace varda::aggregator
