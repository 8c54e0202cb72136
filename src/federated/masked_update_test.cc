#include "federated/masked_update.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "base/rng.h"

namespace varda::federated {
namespace {
namespace masked_update_test {

using codec::Json;

std::vector<float> some_delta(std::uint64_t seed, std::size_t size = 500) {
  const auto rng = seeded_rng(seed);
  std::vector<float> out(size);
  for (float& value : out) value = static_cast<float>(2 * rng->unit() - 1);
  return out;
}

TEST(MaskedUpdates, MeanOfTheSumIsTheWeightedMeanWithinTheRounding) {
  const MaskedForm form{.limit = 2, .clients = 4, .weight_max = 1000};
  const std::uint64_t samples[] = {10, 400, 5000};  // the last one counts as 1000
  std::vector<std::uint32_t> sum(500 + kMaskedTail);
  std::vector<double> want(500);
  double weights = 0;
  for (std::uint64_t client = 0; client < 3; ++client) {
    const auto delta = some_delta(client);
    const auto mine = to_integers(form, delta, samples[client]).value();
    EXPECT_EQ(mine.cut, 0u);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += mine.values[i];
    const double weight = std::min<double>(static_cast<double>(samples[client]), 1000);
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += weight * delta[i];
    weights += weight;
  }
  const MaskedMean mean = mean_of(form, sum, 3).value();
  EXPECT_NEAR(mean.weight, weights / 1000, 1e-6);
  const double step = 2 * 4 / 2147483648.0;
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(mean.delta[i], want[i] / weights, 4 * step / mean.weight + 1e-7);
  // A fixed divisor gives the sum of equal weights.
  const MaskedMean divided = mean_of(form, sum, 3, 8).value();
  EXPECT_NEAR(divided.delta[0], want[0] / 1000 / 8, 1e-6);
}

TEST(MaskedUpdates, ClipHoldsForTheRoundedValues) {
  const MaskedForm form{.limit = 1, .clients = 1000, .clip = 1};
  const auto delta = some_delta(1, 4000);
  const auto mine = to_integers(form, delta, 5).value();
  const double step = 1000 / 2147483648.0;
  double squares = 0;
  for (std::size_t i = 0; i < delta.size(); ++i) {
    const double value = static_cast<std::int32_t>(mine.values[i]) * step;
    squares += value * value;
  }
  EXPECT_LE(std::sqrt(squares), 1.0);
  EXPECT_GT(std::sqrt(squares), 0.99);
  const MaskedForm coarse{.limit = 1e9, .clients = 1000, .clip = 1e-3};
  EXPECT_EQ(to_integers(coarse, delta, 5).error().code(), Code::kInvalid);
}

TEST(MaskedUpdates, ValuesBeyondTheLimitAreCutAndCounted) {
  const MaskedForm form{.limit = 1, .clients = 3};
  const std::vector<float> delta = {0.5f, 3, -7};
  const auto mine = to_integers(form, delta, 1).value();
  EXPECT_EQ(mine.cut, 2u);
  const MaskedMean mean = mean_of(form, mine.values, 1).value();
  EXPECT_NEAR(mean.delta[1], 1, 1e-6);
  EXPECT_NEAR(mean.delta[2], -1, 1e-6);
}

TEST(MaskedUpdates, VectorsThatAreNoSumAreRefused) {
  const MaskedForm form{.limit = 1, .clients = 3};
  EXPECT_EQ(mean_of(form, {}, 1).error().code(), Code::kCorrupt);
  const std::uint32_t whole = to_integers(form, {}, 1).value().values[0];  // the weight 1
  EXPECT_TRUE(mean_of(form, std::vector<std::uint32_t>{7, whole, 1}, 1).ok());
  for (const std::vector<std::uint32_t>& sum : std::vector<std::vector<std::uint32_t>>{
           {1}, {7, 0, 1}, {7, 0x7fffffff, 1}, {7, 0xf0000000, 1}, {7, whole, 2}, {7, whole, 0}})
    EXPECT_EQ(mean_of(form, sum, 1).error().code(), Code::kCorrupt);
  const std::vector<float> nan = {std::numeric_limits<float>::quiet_NaN()};
  EXPECT_FALSE(to_integers(form, nan, 1).ok());
  EXPECT_FALSE(to_integers(form, some_delta(1), 0).ok());
}

TEST(MaskedUpdates, FileIsReadBackOrRefusedWithAReason) {
  const codec::Sha256 base = codec::Sha256::of("model");
  const std::vector<std::uint32_t> values = {1, 0xffffffff, 3};
  const std::string bytes =
      encode_masked({.task = "t", .base = base, .metrics = Json::object({{"loss", 0.5}})}, values)
          .value();
  const auto file = parse_masked(bytes, "t", base, 3);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->values, values);
  EXPECT_EQ(file->info.metrics["loss"].as_double(), 0.5);
  const auto reason = [&](const std::string& text, const std::string& task,
                          const codec::Sha256& model, std::size_t length) {
    return parse_masked(text, task, model, length).error().reason;
  };
  EXPECT_EQ(reason(bytes, "u", base, 3), RefusalReason::kTask);
  EXPECT_EQ(reason(bytes, "t", codec::Sha256::of("other"), 3), RefusalReason::kBase);
  EXPECT_EQ(reason(bytes, "t", base, 4), RefusalReason::kShape);
  EXPECT_EQ(reason(bytes.substr(0, bytes.size() - 1), "t", base, 3), RefusalReason::kFormat);
  EXPECT_EQ(reason("", "t", base, 3), RefusalReason::kFormat);
  std::string floats = bytes;
  floats.replace(floats.find("\"U32\""), 5, "\"F32\"");
  EXPECT_EQ(reason(floats, "t", base, 3), RefusalReason::kFormat);
  const auto layout = Layout::make({{"w", tensor::DType::kFp32, {3}}}).value();
  const std::string plain =
      encode_update({.task = "t", .base = base, .samples = 1}, *layout, std::vector<float>{1, 2, 3})
          .value();
  EXPECT_EQ(reason(plain, "t", base, 3), RefusalReason::kFormat);
}

}  // namespace masked_update_test
}  // namespace
}  // namespace varda::federated
