#include "training/internal/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

namespace varda::training {
namespace batches_test {

using tensor::DType;
using tensor::Tensor;
using ::testing::ElementsAre;

// Copies of the first sample alone would dominate the statistics of BatchNormalization.
TEST(Batches, IncompleteBatchRepeatsAllItsSamplesInTurn) {
  const std::vector<float> values{1, 10, 2, 20, 3, 30};
  const Tensor rows = Tensor::of<float>(DType::kFp32, {3, 2}, std::span(values)).value();
  const auto out = filled(rows, 8);
  ASSERT_TRUE(out.ok()) << out.error();
  EXPECT_EQ(out->shape(), (tensor::Shape{8, 2}));
  const auto all = out->values<float>();
  EXPECT_THAT(std::vector<float>(all.begin(), all.end()),
              ElementsAre(1, 10, 2, 20, 3, 30, 1, 10, 2, 20, 3, 30, 1, 10, 2, 20));
  EXPECT_FALSE(filled(rows, 2).ok());
}

}  // namespace batches_test
}  // namespace varda::training
