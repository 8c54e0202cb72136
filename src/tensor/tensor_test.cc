#include "tensor/tensor.h"

#include <array>
#include <cstring>
#include <gtest/gtest.h>

namespace varda::tensor {
namespace {

TEST(DType, EveryNameParsesAndUnknownNamesDoNot) {
  for (int number = 1; number <= 14; ++number) {
    const DType dtype = dtype_of(number).value();
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
  }
  EXPECT_FALSE(dtype_of(0) || dtype_of(15) || dtype_of(-1));
  EXPECT_FALSE(parse_dtype("fp32") || parse_dtype(""));
}

TEST(Shape, ElementsMultiplyAndOverflowIsAnError) {
  EXPECT_EQ(elements({}).value(), 1u);
  EXPECT_EQ(elements({2, 8, 8}).value(), 128u);
  EXPECT_EQ(elements({3, 0, 5}).value(), 0u);
  EXPECT_EQ(elements({2, -1}).error().code(), Code::kInvalid);
  EXPECT_EQ(elements({std::int64_t{1} << 40, std::int64_t{1} << 40}).error().message(),
            "shape [1099511627776,1099511627776] has too many elements");
}

TEST(Shape, FitsAllowsOnlyOpenDimensionsToVary) {
  EXPECT_TRUE(fits({7, 8, 8}, {-1, 8, 8}));
  EXPECT_FALSE(fits({7, 8}, {-1, 8, 8}));
  EXPECT_FALSE(fits({7, 8, 9}, {-1, 8, 8}));
  EXPECT_TRUE(fits({}, {}));
}

TEST(Tensor, BorrowedAlignedBytesAreNotCopied) {
  alignas(8) static const std::array<float, 4> values = {1, 2, 3, 4};
  const auto tensor =
      Tensor::over(DType::kFp32, {2, 2}, std::as_bytes(std::span(values)), nullptr).value();
  EXPECT_EQ(static_cast<const void*>(tensor.bytes().data()), values.data());
  EXPECT_EQ(tensor.values<float>()[3], 4.0f);
}

TEST(Tensor, MisalignedBytesAreCopied) {
  alignas(8) std::array<std::byte, 12> raw{};
  const float two = 2;
  std::memcpy(raw.data() + 1, &two, 4);
  const auto tensor =
      Tensor::over(DType::kFp32, {1}, std::span<const std::byte>(raw).subspan(1, 4), nullptr)
          .value();
  EXPECT_EQ(tensor.values<float>()[0], 2.0f);
  EXPECT_NE(tensor.bytes().data(), raw.data() + 1);
}

TEST(Tensor, KeeperLivesUntilTheLastTensorIsDestroyed) {
  auto owner = std::make_shared<std::string>("abcd");
  const std::weak_ptr<std::string> watch = owner;
  Tensor copy;
  {
    const auto bytes = std::as_bytes(std::span<const char>(*owner));
    copy = Tensor::over(DType::kUint8, {4}, bytes, std::move(owner)).value();
  }
  EXPECT_FALSE(watch.expired());
  copy = Tensor();
  EXPECT_TRUE(watch.expired());
}

TEST(Tensor, ErrorNamesShapeAndSizeOfWrongBytes) {
  const std::array<float, 3> values = {1, 2, 3};
  const auto result = Tensor::of<float>(DType::kFp32, {2, 2}, values);
  EXPECT_EQ(result.error().message(), "shape [2,2] of FP32 takes 16 bytes, not 12");
}

TEST(Tensor, StringsSurviveARoundTripThroughTheirEncoding) {
  const std::vector<std::string> items = {"", "one", std::string("z\0z", 3)};
  const auto tensor = Tensor::of_strings({3}, items).value();
  EXPECT_EQ(tensor.bytes().size(), 4u * 3 + 6);
  const auto back = tensor.strings();
  EXPECT_EQ(std::vector<std::string>(back.begin(), back.end()), items);
}

TEST(Tensor, TruncatedStringDataIsRefused) {
  const auto tensor = Tensor::of_strings({1}, std::vector<std::string>{"hello"}).value();
  const auto bytes = tensor.bytes();
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_FALSE(Tensor::over(DType::kBytes, {1}, bytes.subspan(0, cut), nullptr).ok()) << cut;
  }
  EXPECT_FALSE(Tensor::over(DType::kBytes, {0}, bytes, nullptr).ok());
}

TEST(Tensor, ReshapeKeepsBytesAndRefusesAnotherSize) {
  const auto tensor = Tensor::allocate(DType::kFp32, {2, 64}).value();
  EXPECT_EQ(tensor.reshaped({2, 8, 8}).value().bytes().data(), tensor.bytes().data());
  EXPECT_FALSE(tensor.reshaped({2, 8, 9}).ok());
}

}  // namespace
}  // namespace varda::tensor
