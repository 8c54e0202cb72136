#include "federated/weights.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "tensor/half.h"

namespace varda::federated {
namespace weights_test {

using tensor::DType;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
tensor::Named named(std::string name, DType dtype, const std::vector<T>& values) {
  return {std::move(name),
          Tensor::of<T>(dtype, {static_cast<std::int64_t>(values.size())}, values).value()};
}

TEST(Layout, OrdersTensorsByName) {
  const auto layout =
      Layout::make({{"b", DType::kFp32, {2, 3}}, {"a", DType::kFp32, {}}, {"B", DType::kFp16, {0}}})
          .value();
  ASSERT_EQ(layout->tensors().size(), 3u);
  EXPECT_EQ(layout->tensors()[0].name, "B");
  EXPECT_EQ(layout->find("b")->first, 1u);
  EXPECT_EQ(layout->size(), 7u);
  EXPECT_EQ(layout->find("c"), nullptr);
}

TEST(Layout, DigestsDifferByNameTypeAndShape) {
  const auto digest = [](tensor::Spec spec) { return Layout::make({spec}).value()->digest(); };
  const auto one = digest({"a", DType::kFp32, {2, 3}});
  EXPECT_EQ(one, digest({"a", DType::kFp32, {2, 3}}));
  EXPECT_NE(one, digest({"b", DType::kFp32, {2, 3}}));
  EXPECT_NE(one, digest({"a", DType::kFp16, {2, 3}}));
  EXPECT_NE(one, digest({"a", DType::kFp32, {3, 2}}));
}

TEST(Layout, NamesThatUpdatesNeedAreRefused) {
  const auto message = [](std::vector<tensor::Spec> specs) {
    const auto layout = Layout::make(std::move(specs));
    return layout.ok() ? "" : layout.error().message();
  };
  const DType f = DType::kFp32;
  EXPECT_THAT(message({{"w", f, {1}}, {"w", f, {1}}}), HasSubstr("\"w\""));
  EXPECT_THAT(message({{"w", f, {1}}, {"w#scale", f, {1}}}), HasSubstr("w#scale"));
  EXPECT_THAT(message({{"w", f, {1}}, {"control/w", f, {1}}}), HasSubstr("control/w"));
  EXPECT_THAT(message({{"", f, {1}}}), HasSubstr("empty"));
  EXPECT_THAT(message({{"w", DType::kBool, {1}}}), HasSubstr("BOOL"));
  EXPECT_THAT(message({{"w", f, {-1}}}), HasSubstr("\"w\""));
  EXPECT_EQ(message({{"w#scale", f, {1}}, {"control/x", f, {1}}}), "");
}

TEST(Weights, EachTypeBecomesFloatsAndReturns) {
  const std::vector<tensor::Named> tensors = {
      named<float>("f32", DType::kFp32, {1.5f, -2}),
      named<double>("f64", DType::kFp64, {0.25, 1e300 * 0}),
      named<std::uint16_t>("f16", DType::kFp16, {tensor::half_of(0.1f), 0x0001}),
      named<std::uint16_t>("bf16", DType::kBf16, {tensor::bf16_of(3.0f)}),
      named<std::int64_t>("i64", DType::kInt64, {-7, 1 << 20}),
      named<std::uint8_t>("u8", DType::kUint8, {0, 255}),
      named<std::int32_t>("i32", DType::kInt32, {5})};
  auto weights = Weights::of(tensors).value();
  EXPECT_THAT(weights.tensor("i64"), ElementsAre(-7, 1 << 20));
  EXPECT_THAT(weights.tensor("f16"),
              ElementsAre(tensor::float_of(tensor::half_of(0.1f)), 0x1p-24f));
  EXPECT_THAT(weights.tensor("bf16"), ElementsAre(3));
  const std::string file = weights.to_safetensors({{"round", "3"}}).value();
  EXPECT_EQ(file, write_safetensors(tensors, {{"round", "3"}}).value());
  const auto again = Weights::parse(file).value();
  EXPECT_EQ(again.layout(), weights.layout());
  EXPECT_THAT(again.tensor("u8"), ElementsAre(0, 255));
}

TEST(Weights, IntegersAreRoundedAndSaturate) {
  auto weights =
      Weights::of(std::vector<tensor::Named>{named<std::int8_t>("i8", DType::kInt8, {0, 0, 0, 0}),
                                             named<std::int64_t>("i64", DType::kInt64, {0, 0}),
                                             named<std::uint64_t>("u64", DType::kUint64, {0, 0})})
          .value();
  const auto set = [&](std::string_view name, std::vector<float> values) {
    std::copy(values.begin(), values.end(), weights.tensor(name).begin());
  };
  set("i8", {2.5f, -3.5f, 400, -400});
  set("i64", {1e30f, -1e30f});
  set("u64", {1e30f, -4});
  EXPECT_THAT(weights.to_tensor("i8")->values<std::int8_t>(), ElementsAre(2, -4, 127, -128));
  EXPECT_THAT(weights.to_tensor("i64")->values<std::int64_t>(),
              ElementsAre(std::numeric_limits<std::int64_t>::max(),
                          std::numeric_limits<std::int64_t>::min()));
  EXPECT_THAT(weights.to_tensor("u64")->values<std::uint64_t>(),
              ElementsAre(std::numeric_limits<std::uint64_t>::max(), 0u));
}

TEST(Weights, ValuesThatAreNotFiniteAreRefused) {
  for (const double value : {std::nan(""), HUGE_VAL, 1e39}) {
    const std::vector<tensor::Named> tensors = {named<double>("w", DType::kFp64, {value})};
    EXPECT_THAT(Weights::of(tensors).error().message(), HasSubstr("\"w\""));
    EXPECT_FALSE(Weights::parse(write_safetensors(tensors).value()).ok());
  }
  auto weights =
      Weights::of(std::vector<tensor::Named>{named<std::uint16_t>("w", DType::kFp16, {0})}).value();
  weights.values()[0] = 65520;
  EXPECT_THAT(weights.to_safetensors().error().message(), HasSubstr("F16"));
  weights.values()[0] = 65519;
  EXPECT_TRUE(weights.to_safetensors().ok());
}

TEST(Weights, FileOrderAndAlignmentDoNotMatter) {
  // The F32 tensor begins at an odd offset.
  std::string header =
      R"({"z":{"dtype":"F32","shape":[1],"data_offsets":[1,5]},"a":{"dtype":"U8","shape":[1],)"
      R"("data_offsets":[0,1]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  const float value = 2.5f;
  file += header + "\x07" + std::string(reinterpret_cast<const char*>(&value), 4);
  const auto weights = Weights::parse(file);
  ASSERT_TRUE(weights.ok()) << weights.error();
  EXPECT_THAT(weights->values(), ElementsAre(7, 2.5f));
}

}  // namespace weights_test
}  // namespace varda::federated
