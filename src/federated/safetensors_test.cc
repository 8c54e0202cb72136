#include "federated/safetensors.h"

#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/testing/memory_file_system.h"
#include "os/testing/test_directory.h"

namespace varda::federated {
namespace safetensors_test {

using tensor::DType;
using tensor::Tensor;
using ::testing::HasSubstr;

std::string with_header(const std::string& header, const std::string& values = "") {
  std::string out(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(out.data(), &length, sizeof length);
  return out + header + values;
}

tensor::Named floats(std::string name, tensor::Shape shape, std::vector<float> values) {
  return {std::move(name), Tensor::of<float>(DType::kFp32, std::move(shape), values).value()};
}

TEST(Safetensors, WrittenTensorsReadBackWithMetadata) {
  const std::vector<std::int8_t> bytes = {1, -2, 3};
  const std::vector<std::int64_t> longs = {-5};
  const std::vector<tensor::Named> tensors = {
      {"b", Tensor::of<std::int8_t>(DType::kInt8, {3}, bytes).value()},
      floats("a", {2, 2}, {1, 2, 3, 4}),
      {"count", Tensor::of<std::int64_t>(DType::kInt64, {}, longs).value()},
      floats("empty", {0, 7}, {})};
  const std::string file = write_safetensors(tensors, {{"format", "pt"}, {"ä", "\n"}}).value();
  const auto read = Safetensors::of(file);
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_EQ(read->header().metadata("ä"), "\n");
  EXPECT_EQ(read->header().metadata("none"), "");
  EXPECT_EQ(read->header().entries().size(), 4u);
  EXPECT_EQ(read->tensor("a")->values<float>()[3], 4);
  EXPECT_EQ(read->tensor("b")->values<std::int8_t>()[1], -2);
  EXPECT_EQ(read->tensor("count")->values<std::int64_t>()[0], -5);
  EXPECT_EQ(read->tensor("count")->shape(), tensor::Shape{});
  EXPECT_EQ(read->tensor("empty")->shape(), (tensor::Shape{0, 7}));
  EXPECT_EQ(read->tensor("none").error().code(), Code::kNotFound);
}

TEST(Safetensors, EqualContentInAnotherOrderGivesEqualBytes) {
  const std::vector<tensor::Named> one = {floats("a", {1}, {1}), floats("b", {1}, {2})};
  const std::vector<tensor::Named> two = {one[1], one[0]};
  EXPECT_EQ(write_safetensors(one).value(), write_safetensors(two).value());
}

TEST(Safetensors, ValuesAreAlignedForTheirTypes) {
  const std::vector<std::int8_t> byte = {1};
  const std::vector<tensor::Named> tensors = {
      {"a", Tensor::of<std::int8_t>(DType::kInt8, {1}, byte).value()}, floats("b", {1}, {2})};
  const auto read = Safetensors::of(write_safetensors(tensors).value()).value();
  EXPECT_EQ(read.header().find("b")->offset % 4, 0u);
}

// The first example of the format's documentation, written by hand.
TEST(Safetensors, ReadsTheDocumentedExample) {
  const std::string file = with_header(
      R"({"TEST":{"dtype":"F16","shape":[1,16],"data_offsets":[0,32]}})", std::string(32, '\0'));
  EXPECT_EQ(Safetensors::of(file)->tensor("TEST")->shape(), (tensor::Shape{1, 16}));
}

TEST(Safetensors, ReadsFiles) {
  const os::testing::TestDirectory directory;
  const std::vector<tensor::Named> tensors = {floats("a", {2}, {1, 2})};
  directory.write("file", write_safetensors(tensors).value());
  auto read = Safetensors::open(os::real_file_system(), directory / "file");
  ASSERT_TRUE(read.ok()) << read.error();
  ASSERT_TRUE(os::real_file_system().remove(directory / "file").ok());
  EXPECT_EQ(read->tensor("a")->values<float>()[1], 2);
  os::testing::MemoryFileSystem memory;
  ASSERT_TRUE(os::write_file_atomically(memory, "/f", write_safetensors(tensors).value()).ok());
  EXPECT_TRUE(Safetensors::open(memory, "/f").ok());
  EXPECT_EQ(Safetensors::open(memory, "/g").error().code(), Code::kNotFound);
}

TEST(Safetensors, BrokenFilesAreRefusedWithTheReason) {
  const std::string f4 = R"("dtype":"F32","shape":[1],)";
  const struct {
    std::string file;
    const char* expected;
  } cases[] = {
      {"", "less than 8 bytes"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}"), "18446744073709551615"},
      {std::string("\0\0\0\0\0\0\0\x80{}", 10), "9223372036854775808"},
      {with_header("{}").substr(0, 9), "ends within a header"},
      {with_header(" {}"), "begin with {"},
      {with_header("{"), "header"},
      {with_header("{}", "x"), "1 bytes follow"},
      {with_header(R"({"a":1})"), "has the type"},
      {with_header(R"({"a":{)" + f4 + R"("data_offsets":[0,4]}})", "abc"), "end after the file"},
      {with_header(R"({"a":{)" + f4 + R"("data_offsets":[0,5]}})", "abcde"), "takes 4 bytes"},
      {with_header(R"({"a":{)" + f4 + R"("data_offsets":[4,0]}})", "abcd"), "takes 4 bytes"},
      {with_header(R"({"a":{)" + f4 + R"("data_offsets":[-4,0]}})", "abcd"), "integers from 0"},
      {with_header(R"({"a":{)" + f4 + R"("data_offsets":[4,8]}})", "abcdefgh"), "a hole"},
      {with_header(
           R"({"a":{)" + f4 + R"("data_offsets":[0,4]},"b":{)" + f4 + R"("data_offsets":[0,4]}})",
           "abcd"),
       "overlap"},
      {with_header(
           R"({"a":{)" + f4 + R"("data_offsets":[0,4]},"a":{)" + f4 + R"("data_offsets":[4,8]}})",
           "abcdefgh"),
       "twice"},
      {with_header(R"({"a":{)" + f4 + R"("data_offsets":[0,4],"x":1}})", "abcd"), "unknown member"},
      {with_header(R"({"":{)" + f4 + R"("data_offsets":[0,4]}})", "abcd"), "empty name"},
      {with_header(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})"), "from 0"},
      {with_header(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})"), "from 0"},
      {with_header(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],)"
                   R"("data_offsets":[0,0]}})"),
       "too many elements"},
      {with_header(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})"), "no shape"},
      {with_header(R"({"__metadata__":{"a":1}})"), "no string"},
      {with_header(R"({"__metadata__":[]})"), "object of strings"},
  };
  for (const auto& one : cases) {
    const auto read = Safetensors::of(one.file);
    ASSERT_FALSE(read.ok()) << one.expected;
    EXPECT_EQ(read.error().code(), Code::kInvalid);
    EXPECT_THAT(read.error().message(), HasSubstr(one.expected));
  }
}

TEST(Safetensors, UnknownTypesAreUnsupported) {
  const auto read = Safetensors::of(
      with_header(R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", "x"));
  EXPECT_EQ(read.error().code(), Code::kUnsupported);
}

TEST(Safetensors, LimitsHold) {
  const std::vector<tensor::Named> tensors = {floats("abc", {1, 1}, {1}), floats("b", {1}, {2})};
  const std::string file = write_safetensors(tensors).value();
  EXPECT_TRUE(Safetensors::of(file, {.tensors_max = 2}).ok());
  EXPECT_FALSE(Safetensors::of(file, {.tensors_max = 0}).ok());
  EXPECT_FALSE(Safetensors::of(file, {.name_bytes_max = 2}).ok());
  EXPECT_FALSE(Safetensors::of(file, {.rank_max = 1}).ok());
  EXPECT_FALSE(Safetensors::of(file, {.header_bytes_max = 20}).ok());
}

TEST(Safetensors, HeadersNeedOnlyTheBeginOfAFile) {
  const std::vector<tensor::Named> tensors = {floats("a", {2}, {1, 2})};
  const std::string file = write_safetensors(tensors).value();
  const std::size_t size = SafetensorsHeader::bytes_of(file.substr(0, 8)).value();
  const auto header = SafetensorsHeader::parse(file.substr(0, size), file.size());
  ASSERT_TRUE(header.ok()) << header.error();
  EXPECT_EQ(header->entries()[0].offset, size);
}

TEST(Safetensors, TheWriterRefusesNamesTwice) {
  const std::vector<tensor::Named> twice = {floats("a", {1}, {1}), floats("a", {1}, {1})};
  EXPECT_THAT(write_safetensors(twice).error().message(), HasSubstr("\"a\""));
  const std::vector<tensor::Named> reserved = {floats("__metadata__", {1}, {1})};
  EXPECT_FALSE(write_safetensors(reserved).ok());
}

}  // namespace safetensors_test
}  // namespace varda::federated
