#include "training/schedule.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tuple>
#include <vector>

namespace varda::training {
namespace {

namespace schedule_test {

using ::testing::Pointwise;

/// The rates of `epochs` epochs with two updates each.
std::vector<double> rates(Schedule schedule, std::int64_t epochs) {
  Settings settings;
  settings.epochs = epochs;
  settings.optimizer.learning_rate = 0.8;
  settings.schedule = schedule;
  std::vector<double> out;
  for (std::uint64_t update = 0; update < static_cast<std::uint64_t>(2 * epochs); ++update)
    out.push_back(learning_rate(settings, update, 2));
  return out;
}

MATCHER(Near, "") { return std::abs(std::get<0>(arg) - std::get<1>(arg)) < 1e-12; }

TEST(Schedule, ConstantRateStays) {
  EXPECT_EQ(rates({}, 2), (std::vector<double>{0.8, 0.8, 0.8, 0.8}));
}

TEST(Schedule, WarmUpRisesLinearlyToTheRate) {
  EXPECT_THAT(rates({.warmup_epochs = 2}, 3),
              Pointwise(Near(), std::vector<double>{0.2, 0.4, 0.6, 0.8, 0.8, 0.8}));
}

TEST(Schedule, StepMultipliesOncePerPeriodDownToTheMinimum) {
  const Schedule step = {.kind = Schedule::Kind::kStep, .every_epochs = 2, .factor = 0.1};
  EXPECT_THAT(rates(step, 5), Pointwise(Near(), std::vector<double>{0.8, 0.8, 0.8, 0.8, 0.08, 0.08,
                                                                    0.08, 0.08, 0.008, 0.008}));
  Schedule bounded = step;
  bounded.minimum = 0.05;
  EXPECT_THAT(rates(bounded, 5),
              Pointwise(Near(), std::vector<double>{0.8, 0.8, 0.8, 0.8, 0.08, 0.08, 0.08, 0.08,
                                                    0.05, 0.05}));
}

TEST(Schedule, CosineFallsFromTheEndOfTheWarmUpTowardsTheMinimum) {
  const Schedule cosine = {.kind = Schedule::Kind::kCosine, .warmup_epochs = 1, .minimum = 0.2};
  // Four updates after the warm-up: 1, (1 + 1/sqrt 2)/2, 1/2 and (1 - 1/sqrt 2)/2 of 0.6 above 0.2.
  EXPECT_THAT(rates(cosine, 3),
              Pointwise(Near(), std::vector<double>{0.4, 0.8, 0.8, 0.712132034355964, 0.5,
                                                    0.287867965644036}));
}

TEST(Schedule, WarmUpAsLongAsTheRunIsAllowed) {
  const Schedule cosine = {.kind = Schedule::Kind::kCosine, .warmup_epochs = 2};
  EXPECT_THAT(rates(cosine, 2), Pointwise(Near(), std::vector<double>{0.2, 0.4, 0.6, 0.8}));
}

}  // namespace schedule_test
}  // namespace
}  // namespace varda::training
