// Steps against the formulas of the papers in FP64, written down independently of the optimizer.
#include "train/optimizer.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

namespace varda::train {
namespace {

namespace optimizer_test {

using Kind = OptimizerOptions::Kind;
using ::testing::HasSubstr;

constexpr double kRate = 0.1;
constexpr double kSlopes[] = {0.5, -0.25, 1.0, 0.125};

/// One weight after four steps.
float trained(const OptimizerOptions& options) {
  const std::size_t size = 1;
  auto optimizer = Optimizer::create(options, {&size, 1}).value();
  float weight = 2;
  for (const double slope : kSlopes) {
    const auto gradient = static_cast<float>(slope);
    optimizer.begin_step(kRate);
    optimizer.update(0, {&weight, 1}, {&gradient, 1});
  }
  EXPECT_EQ(optimizer.steps(), 4u);
  return weight;
}

TEST(Optimizer, SgdFollowsTheFormulas) {
  double plain = 2, decayed = 2, heavy = 2, ahead = 2, speed = 0;
  for (const double slope : kSlopes) {
    plain -= kRate * slope;
    decayed -= kRate * (slope + 0.01 * decayed);
    speed = 0.9 * speed + slope;
    heavy -= kRate * speed;
    ahead -= kRate * (slope + 0.9 * speed);
  }
  EXPECT_NEAR(trained({}), plain, 1e-6);
  EXPECT_NEAR(trained({.weight_decay = 0.01}), decayed, 1e-6);
  EXPECT_NEAR(trained({.momentum = 0.9}), heavy, 1e-6);
  EXPECT_NEAR(trained({.momentum = 0.9, .nesterov = true}), ahead, 1e-6);
}

TEST(Optimizer, AdamAndAdamWFollowTheFormulas) {
  const auto expected = [](double added_decay, double separate_decay) {
    double weight = 2, mean = 0, square = 0;
    int step = 0;
    for (const double slope : kSlopes) {
      ++step;
      const double g = slope + added_decay * weight;
      weight *= 1 - kRate * separate_decay;
      mean = 0.9 * mean + 0.1 * g;
      square = 0.999 * square + 0.001 * g * g;
      const double unbiased_mean = mean / (1 - std::pow(0.9, step));
      const double unbiased_square = square / (1 - std::pow(0.999, step));
      weight -= kRate * unbiased_mean / (std::sqrt(unbiased_square) + 1e-8);
    }
    return weight;
  };
  EXPECT_NEAR(trained({.kind = Kind::kAdam}), expected(0, 0), 2e-6);
  EXPECT_NEAR(trained({.kind = Kind::kAdam, .weight_decay = 0.1}), expected(0.1, 0), 2e-6);
  EXPECT_NEAR(trained({.kind = Kind::kAdamW, .weight_decay = 0.1}), expected(0, 0.1), 2e-6);
}

TEST(Optimizer, ValuesOutOfRangeAreNamed) {
  const auto error = [](const OptimizerOptions& options) {
    const auto made = Optimizer::create(options, {});
    return made.ok() ? "" : made.error().message();
  };
  EXPECT_EQ(error({}), "");
  EXPECT_THAT(error({.momentum = 1}), HasSubstr("momentum is 1.0"));
  EXPECT_THAT(error({.learning_rate = std::numeric_limits<double>::quiet_NaN()}),
              HasSubstr("learningRate is nan"));
  EXPECT_THAT(error({.beta2 = -0.1}), HasSubstr("beta2"));
  EXPECT_THAT(error({.epsilon = 0}), HasSubstr("epsilon"));
  EXPECT_THAT(error({.weight_decay = -1}), HasSubstr("weightDecay"));
  EXPECT_EQ(error({.nesterov = true}), "nesterov needs a momentum above 0");
}

TEST(Optimizer, StateOfOtherSizesIsRefused) {
  const std::size_t size = 3;
  auto adam = Optimizer::create({.kind = Kind::kAdam}, {&size, 1}).value();
  EXPECT_EQ(adam.state().at(0).size(), 6u);
  EXPECT_FALSE(adam.restore(1, {}).ok());
  EXPECT_FALSE(adam.restore(1, {{1, 2, 3}}).ok());
  EXPECT_TRUE(adam.restore(1, {{1, 2, 3, 4, 5, 6}}).ok());
  EXPECT_EQ(adam.steps(), 1u);
}

}  // namespace optimizer_test
}  // namespace
}  // namespace varda::train
