#include "tensor/half.h"

#include <cmath>
#include <gtest/gtest.h>

namespace varda::tensor {
namespace half_test {

TEST(Half, EveryHalfSurvivesARoundTripThroughFloat) {
  for (std::uint32_t half = 0; half <= 0xffff; ++half) {
    const float value = float_of(static_cast<std::uint16_t>(half));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(float_of(half_of(value))));
    } else {
      ASSERT_EQ(half_of(value), half) << value;
    }
  }
}

TEST(Half, FloatsRoundToTheNearestHalfWithTiesToEven) {
  EXPECT_EQ(half_of(1.0f), 0x3c00);
  EXPECT_EQ(half_of(-2.0f), 0xc000);
  EXPECT_EQ(half_of(65504.0f), 0x7bff);
  EXPECT_EQ(half_of(65519.9f), 0x7bff);
  EXPECT_EQ(half_of(65520.0f), 0x7c00);
  EXPECT_EQ(half_of(0x1p-24f), 0x0001);
  EXPECT_EQ(half_of(0x1p-25f), 0x0000);
  EXPECT_EQ(half_of(0x1.8p-24f), 0x0002);
  EXPECT_EQ(half_of(1.0f + 0x1p-11f), 0x3c00);
  EXPECT_EQ(half_of(1.0f + 0x1.8p-10f), 0x3c02);
  EXPECT_EQ(half_of(1.0f + 0x1.004p-11f), 0x3c01);
}

TEST(Bf16, EveryBf16SurvivesARoundTripThroughFloat) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = float_of_bf16(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(float_of_bf16(bf16_of(value))));
    } else {
      ASSERT_EQ(bf16_of(value), bits) << value;
    }
  }
  EXPECT_EQ(bf16_of(1.0f + 0x1p-8f), 0x3f80) << "ties go to even";
  EXPECT_EQ(bf16_of(1.0f + 0x1.8p-7f), 0x3f82);
  EXPECT_EQ(bf16_of(3.4e38f), 0x7f80) << "rounds to infinity";
}

}  // namespace half_test
}  // namespace varda::tensor
