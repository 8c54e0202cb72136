#include "tensor/pool.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <optional>

namespace varda::tensor {
namespace {

Tensor floats(Pool& pool, std::int64_t count) {
  return pool.allocate(DType::kFp32, {count}).value();
}

TEST(Pool, MemoryReturnsWithTheLastCopy) {
  Pool pool(1);
  std::optional<Tensor> first = floats(pool, 16), copy = first;
  const std::byte* const memory = first->bytes().data();
  first.reset();
  const Tensor meanwhile = floats(pool, 16);
  EXPECT_NE(meanwhile.bytes().data(), memory);
  copy.reset();
  EXPECT_EQ(floats(pool, 16).bytes().data(), memory);
}

TEST(Pool, SmallerTensorsUseLargerMemory) {
  Pool pool(1);
  const std::byte* const memory = floats(pool, 1000).bytes().data();
  const Tensor small = floats(pool, 10);
  EXPECT_EQ(small.bytes().data(), memory);
  EXPECT_EQ(small.bytes().size(), 40u);
}

TEST(Pool, LargerTensorsReplaceSpareMemory) {
  Pool pool(1);
  { const Tensor small = floats(pool, 10); }
  const std::byte* memory = nullptr;
  {
    Tensor large = floats(pool, 10'000);
    std::ranges::fill(large.mutable_values<float>(), 1.0f);
    memory = large.bytes().data();
  }
  EXPECT_EQ(floats(pool, 10'000).bytes().data(), memory);
}

TEST(Pool, TheClosestSizeIsTaken) {
  Pool pool(2);
  std::optional<Tensor> large = floats(pool, 1000), small = floats(pool, 20);
  const std::byte *const of_large = large->bytes().data(), *const of_small = small->bytes().data();
  large.reset();
  small.reset();
  const Tensor one = floats(pool, 10), other = floats(pool, 900);
  EXPECT_EQ(one.bytes().data(), of_small);
  EXPECT_EQ(other.bytes().data(), of_large);
}

TEST(Pool, TensorsMayOutliveThePool) {
  std::optional<Pool> pool;
  pool.emplace(1);
  Tensor tensor = floats(*pool, 100);
  pool.reset();
  std::ranges::fill(tensor.mutable_values<float>(), 2.0f);
  EXPECT_EQ(tensor.values<float>()[99], 2.0f);
}

TEST(Pool, BadShapesAreRefused) {
  Pool pool(1);
  EXPECT_EQ(pool.allocate(DType::kFp32, {-1}).error().code(), Code::kInvalid);
  EXPECT_EQ(pool.allocate(DType::kBytes, {1}).error().code(), Code::kInvalid);
}

}  // namespace
}  // namespace varda::tensor
