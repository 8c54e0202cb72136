#include "tensor/npy.h"

#include <gtest/gtest.h>

namespace varda::tensor {
namespace npy_test {

std::string file(const std::string& dictionary) {
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(dictionary.size());
  out += '\0';
  return out + dictionary;
}

// Expected bytes: io.BytesIO and numpy.save() of NumPy 1.24.
TEST(NpyHeader, WrittenHeaderIsThatOfNumPy) {
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  text.resize(117, ' ');
  EXPECT_EQ(npy_header(DType::kFp32, {2, 3}),
            std::string("\x93NUMPY\x01\x00v\x00", 10) + text + "\n");
}

TEST(NpyHeader, WrittenHeadersReadBackTheSame) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{7}, Shape{2, 3}, Shape{1, 2, 3, 4}}) {
    for (const DType dtype : {DType::kBool, DType::kInt64, DType::kFp16, DType::kFp64}) {
      const std::string bytes = npy_header(dtype, shape);
      EXPECT_EQ(bytes.size() % 64, 0u);
      const auto header = parse_npy_header(bytes);
      ASSERT_TRUE(header.ok()) << header.error();
      EXPECT_EQ(header->dtype, dtype);
      EXPECT_EQ(header->shape, shape);
      EXPECT_EQ(header->data_at, bytes.size());
    }
  }
}

TEST(NpyHeader, FortranOrderIsReadOnRequest) {
  const std::string bytes = file("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3), }\n");
  EXPECT_EQ(parse_npy_header(bytes).error().code(), Code::kUnsupported);
  const auto header = parse_npy_header(bytes, NpyOrder::kAny);
  ASSERT_TRUE(header.ok());
  EXPECT_TRUE(header->fortran_order);
  EXPECT_EQ(header->data_bytes, 48u);
}

TEST(NpyHeader, PickledObjectsAreRefused) {
  const auto header =
      parse_npy_header(file("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n"));
  EXPECT_EQ(header.error().code(), Code::kUnsupported);
}

}  // namespace npy_test
}  // namespace varda::tensor
