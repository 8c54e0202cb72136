// The formulas of a round, on numbers.
#include "training/internal/round_terms.h"

#include <array>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <string>
#include <vector>

#include "training/internal/key_stream.h"

namespace varda::training {
namespace {

namespace round_terms_test {

using ::testing::ElementsAre;
using ::testing::FloatEq;

std::array<std::uint8_t, 32> counting_key() {
  std::array<std::uint8_t, 32> out{};
  std::iota(out.begin(), out.end(), std::uint8_t{0});
  return out;
}

TEST(KeyStream, BlockIsThatOfRfc8439) {
  const std::array<std::uint8_t, 12> nonce = {0, 0, 0, 9, 0, 0, 0, 0x4a, 0, 0, 0, 0};
  EXPECT_THAT(chacha20_block(counting_key(), 1, nonce),
              ElementsAre(0xe4e7f110, 0x15593bd1, 0x1fdd0f50, 0xc47120a3, 0xc7f4d1c7, 0x0368c033,
                          0x9aaa2204, 0x4e6cd4c3, 0x466482d2, 0x09aa9f07, 0x05d7c214, 0xa2028bd9,
                          0xd19c12b5, 0xb94e16de, 0xe883d0cb, 0x4e3c50a2));
}

TEST(KeyStream, LabelsHaveOwnStreams) {
  KeyStream a(counting_key(), "a"), again(counting_key(), "a"), b(counting_key(), "b");
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t value = a.next();
    EXPECT_EQ(value, again.next());
    differs = differs || value != b.next();
  }
  EXPECT_TRUE(differs);
}

TEST(KeyStream, NormalNumbersHaveTheMomentsOfTheNormalDistribution) {
  KeyStream stream(counting_key(), "moments");
  constexpr int kCount = 200'000;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < kCount; ++i) {
    const double value = stream.normal();
    sum += value;
    squares += value * value;
    fourth += value * value * value * value;
  }
  // Five standard errors of each moment.
  EXPECT_NEAR(sum / kCount, 0, 5 * std::sqrt(1.0 / kCount));
  EXPECT_NEAR(squares / kCount, 1, 5 * std::sqrt(2.0 / kCount));
  EXPECT_NEAR(fourth / kCount, 3, 5 * std::sqrt(96.0 / kCount));
}

TEST(RoundTerms, ProximalTermPullsToTheStart) {
  std::vector<float> gradient = {1, 2};
  add_proximal_term(gradient, std::vector<float>{3, -1}, std::vector<float>{1, 1}, 0.5);
  EXPECT_THAT(gradient, ElementsAre(FloatEq(2), FloatEq(1)));
}

TEST(RoundTerms, ControlAddsServerMinusOwn) {
  std::vector<float> gradient = {1, 2};
  add_control(gradient, std::vector<float>{0.5f, 0.25f}, {});
  add_control(gradient, {}, std::vector<float>{1, 1});
  EXPECT_THAT(gradient, ElementsAre(FloatEq(0.5f), FloatEq(1.25f)));
}

TEST(RoundTerms, NextControlIsOptionTwo) {
  // c_i - c + (x - y) / (K * eta), with K = 4 steps of eta = 0.25.
  EXPECT_THAT(next_control(std::vector<float>{0.5f}, std::vector<float>{0.75f},
                           std::vector<float>{2}, std::vector<float>{1.5f}, 1.0),
              ElementsAre(FloatEq(0.75f - 0.5f + 0.5f)));
}

TEST(RoundTerms, PoissonSampleHasTheExpectedSize) {
  std::vector<std::size_t> samples(500);
  std::iota(samples.begin(), samples.end(), std::size_t{7});
  KeyStream stream(counting_key(), "draws");
  double drawn = 0;
  std::vector<int> times(500);
  constexpr int kSteps = 400;
  for (int i = 0; i < kSteps; ++i)
    for (const std::size_t sample : poisson_sample(samples, 0.2, stream)) {
      ++drawn;
      ++times.at(sample - 7);
    }
  EXPECT_NEAR(drawn / kSteps, 100, 5 * std::sqrt(500 * 0.2 * 0.8 / kSteps));
  for (const int count : times) EXPECT_NEAR(count, 80, 6 * std::sqrt(kSteps * 0.2 * 0.8));
  EXPECT_EQ(poisson_sample(samples, 1, stream).size(), 500u);
}

TEST(PrivateSum, ClipsEachSampleOverAllWeights) {
  const std::vector<std::size_t> sizes = {1, 1};
  PrivateSum sum(sizes, 1);
  EXPECT_TRUE(sum.add({{3}, {4}}));        // norm 5: becomes 0.6 and 0.8
  EXPECT_TRUE(sum.add({{0.3f}, {0.4f}}));  // norm 0.5 stays
  EXPECT_FALSE(sum.add({{NAN}, {0}}));
  KeyStream stream(counting_key(), "noise");
  const Values mean = sum.finish(0, 4, stream);
  EXPECT_THAT(mean, ElementsAre(ElementsAre(FloatEq(0.9f / 4)), ElementsAre(FloatEq(1.2f / 4))));
}

TEST(PrivateSum, NoiseHasTheDeviationOfTheMechanism) {
  constexpr std::size_t kCount = 50'000;
  const std::vector<std::size_t> sizes = {kCount};
  const PrivateSum sum(sizes, 2);
  KeyStream stream(counting_key(), "noise");
  const Values noise = sum.finish(1.5, 10, stream);
  double squares = 0;
  for (const float value : noise[0]) squares += double{value} * double{value};
  // noise * clip norm / expected samples
  const double deviation = 1.5 * 2 / 10;
  EXPECT_NEAR(std::sqrt(squares / kCount), deviation, 5 * deviation / std::sqrt(2.0 * kCount));
}

}  // namespace round_terms_test

}  // namespace
}  // namespace varda::training
