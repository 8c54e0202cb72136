#include "flower/array.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "flower/testing/peer.h"

namespace varda::flower {
namespace array_test {

template <typename T>
std::string npy_of(const std::string& type, const std::string& order, const std::string& shape,
                   std::span<const T> values) {
  const std::string text =
      "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(text.size());
  out += '\0';
  return out + text +
         std::string(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

std::vector<float> floats(const std::string& npy) {
  const auto array = Array::parse(npy);
  EXPECT_TRUE(array.ok()) << array.error();
  std::vector<float> out(array->size());
  const Status status = array->to_floats(out);
  EXPECT_TRUE(status.ok()) << status.error();
  return out;
}

TEST(FlowerArray, EveryNumericTypeBecomesFloats) {
  const std::vector<float> expected = {1, 0, 3};
  EXPECT_EQ(floats(npy_of<float>("<f4", "False", "(3,)", std::vector<float>{1, 0, 3})), expected);
  EXPECT_EQ(floats(npy_of<double>("<f8", "False", "(3,)", std::vector<double>{1, 0, 3})), expected);
  EXPECT_EQ(
      floats(npy_of<std::int64_t>("<i8", "False", "(3,)", std::vector<std::int64_t>{1, 0, 3})),
      expected);
  EXPECT_EQ(
      floats(npy_of<std::uint8_t>("|u1", "False", "(3,)", std::vector<std::uint8_t>{1, 0, 3})),
      expected);
  EXPECT_EQ(floats(npy_of<std::uint16_t>("<f2", "False", "(3,)",
                                         std::vector<std::uint16_t>{0x3C00, 0, 0x4200})),
            expected);
  EXPECT_EQ(
      floats(npy_of<std::uint8_t>("|b1", "False", "(3,)", std::vector<std::uint8_t>{1, 0, 9})),
      (std::vector<float>{1, 0, 1}));
}

TEST(FlowerArray, FortranOrderIsTransposed) {
  // numpy.asfortranarray([[1, 2, 3], [4, 5, 6]])
  const std::vector<float> stored = {1, 4, 2, 5, 3, 6};
  EXPECT_EQ(floats(npy_of<float>("<f4", "True", "(2, 3)", stored)),
            (std::vector<float>{1, 2, 3, 4, 5, 6}));
  // numpy.asfortranarray(numpy.arange(8).reshape(2, 2, 2))
  const std::vector<float> cube = {0, 4, 2, 6, 1, 5, 3, 7};
  EXPECT_EQ(floats(npy_of<float>("<f4", "True", "(2, 2, 2)", cube)),
            (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(floats(npy_of<float>("<f4", "True", "(2, 0)", std::span<const float>())),
            std::vector<float>());
}

TEST(FlowerArray, ScalarAndEmptyArraysAreRead) {
  EXPECT_EQ(floats(npy_of<float>("<f4", "False", "()", std::vector<float>{7})),
            std::vector<float>{7});
  EXPECT_EQ(floats(npy_of<float>("<f4", "False", "(0, 5)", std::span<const float>())),
            std::vector<float>());
}

TEST(FlowerArray, ValuesThatAreNotFiniteAreInvalid) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    const std::string npy = testing::npy(std::vector<float>{1, bad});
    const auto array = Array::parse(npy);
    std::vector<float> out(2);
    const Status status = array->to_floats(out);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), Code::kInvalid);
    EXPECT_EQ(status.error().message(), "value 1 of the array is not finite");
  }
  const std::string large = npy_of<double>("<f8", "False", "(1,)", std::vector<double>{1e300});
  std::vector<float> out(1);
  EXPECT_FALSE(Array::parse(large)->to_floats(out).ok()) << "beyond a float";
}

TEST(FlowerArray, HostileBytesAreRefused) {
  const std::string good = testing::npy(std::vector<float>{1, 2, 3});
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(Array::parse(std::string_view(good).substr(0, size)).ok()) << size;
  EXPECT_FALSE(Array::parse(good + "x").ok());
  const std::span<const float> none;
  EXPECT_EQ(Array::parse(npy_of("|O", "False", "(1,)", none)).error().code(), Code::kUnsupported)
      << "pickled objects";
  EXPECT_EQ(Array::parse(npy_of(">f4", "False", "(0,)", none)).error().code(), Code::kUnsupported);
  for (const char* shape : {"(9223372036854775807, 9223372036854775807)",
                            "(4294967296, 4294967296)", "(-1,)", "(1000000000000,)"})
    EXPECT_FALSE(Array::parse(npy_of("<f4", "False", shape, none)).ok()) << shape;
}

}  // namespace array_test
}  // namespace varda::flower
