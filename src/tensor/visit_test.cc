#include "tensor/visit.h"

#include <gtest/gtest.h>

namespace varda::tensor {
namespace visit_test {

TEST(VisitDtype, ElementSizesMatchTheirType) {
  for (int number = 1; const auto dtype = dtype_of(number); ++number) {
    const std::size_t bytes =
        visit_dtype(*dtype, []<typename T>(std::type_identity<T>) -> std::size_t {
          return std::is_same_v<T, Bytes> ? 0 : sizeof(T);
        });
    EXPECT_EQ(bytes, element_bytes(*dtype)) << to_string(*dtype);
  }
}

TEST(VisitDtype, HalfTypesKeepTheirValue) {
  EXPECT_EQ(Fp16::of(1.5f).value(), 1.5f);
  EXPECT_EQ(Bf16::of(-2.0f).value(), -2.0f);
}

}  // namespace visit_test
}  // namespace varda::tensor
