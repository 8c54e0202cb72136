#include "oip/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace varda::oip {
namespace npy_test {

using tensor::DType;
using ::testing::HasSubstr;

std::string npy(const std::string& dictionary, const std::string& data, int version = 1) {
  std::string header = dictionary;
  while ((header.size() + 11) % 64 != 0) header += ' ';
  header += '\n';
  std::string out = "\x93NUMPY";
  out += static_cast<char>(version);
  out += '\0';
  const std::size_t bytes = version == 1 ? 2 : 4;
  for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return out + header + data;
}

std::string with_type(const std::string& type, const std::string& shape,
                      const std::string& order = "False") {
  return "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

TEST(Npy, ArraysBecomeTensors) {
  const struct {
    const char *type, *shape;
    std::size_t bytes;
    DType dtype;
    tensor::Shape expected;
  } cases[] = {{"<f4", "(2, 3)", 24, DType::kFp32, {2, 3}},
               {"<f8", "(3,)", 24, DType::kFp64, {3}},
               {"<f2", "()", 2, DType::kFp16, {}},
               {"|u1", "(1, 2, 2)", 4, DType::kUint8, {1, 2, 2}},
               {"<i8", "(0, 4)", 0, DType::kInt64, {0, 4}},
               {"|b1", "(2,)", 2, DType::kBool, {2}}};
  for (const auto& one : cases) {
    for (const int version : {1, 2, 3}) {
      std::string data;
      for (std::size_t i = 0; i < one.bytes; ++i) data += static_cast<char>(i % 2);
      const auto tensor = parse_npy(npy(with_type(one.type, one.shape), data, version));
      ASSERT_TRUE(tensor.ok()) << tensor.error();
      EXPECT_EQ(tensor->dtype(), one.dtype);
      EXPECT_EQ(tensor->shape(), one.expected);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensor->bytes().data()),
                            tensor->bytes().size()),
                data);
    }
  }
}

TEST(Npy, InvalidFilesAreRefusedWithTheReason) {
  const struct {
    std::string bytes;
    const char* expected;
  } cases[] = {
      {"", "not a NumPy file"},
      {"PK\x03\x04", "not a NumPy file"},
      {npy(with_type("<f4", "(2,)"), "1234567"), "has 7 bytes of data; its header says 8"},
      {npy(with_type("<f4", "(2,)"), "12345678").substr(0, 40), "ends within its header"},
      {npy(with_type("<f4", "(2,)"), "12345678", 4), "format version 4"},
      {npy(with_type(">f4", "(2,)"), "12345678"), "elements of type >f4"},
      {npy(with_type("\x1b[31m", "(2,)"), "12345678"), "elements of type ?[31m;"},
      {npy(with_type("<U5", "(2,)"), std::string(40, 'a')), "elements of type <U5"},
      {npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "12345678"),
       "elements of type a structure"},
      {npy(with_type("<f4", "(2, 3)", "True"), std::string(24, 'a')), "Fortran order"},
      {npy(with_type("<f4", "(-1,)"), ""), "damaged header"},
      {npy(with_type("<f4", "(99999999999, 99999999999)"), ""), ""},
      {npy("{'descr': '<f4', 'shape': (1,), }", "1234"), "damaged header"},
      {npy("descr", "1234"), "damaged header"},
      {npy(with_type("<f4", "(1,)") + " extra", "1234"), "damaged header"},
  };
  for (const auto& one : cases) {
    const auto tensor = parse_npy(one.bytes);
    ASSERT_FALSE(tensor.ok()) << one.bytes;
    EXPECT_THAT(tensor.error().message(), HasSubstr(one.expected));
  }
  const std::string whole = npy(with_type("<f4", "(2,)"), "12345678");
  for (std::size_t cut = 0; cut < whole.size(); ++cut)
    EXPECT_FALSE(parse_npy(whole.substr(0, cut)).ok()) << cut;
}

}  // namespace npy_test
}  // namespace varda::oip
