#include "codec/protobuf.h"

#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace varda::codec {
namespace {

// Expected bytes: protobuf.dev/programming-guides/encoding.
TEST(ProtoWriter, BytesMatchTheEncodingGuide) {
  EXPECT_EQ(ProtoWriter().number(1, 150).bytes(), std::string("\x08\x96\x01"));
  EXPECT_EQ(ProtoWriter().text(2, "testing").bytes(), std::string("\x12\x07testing"));
  EXPECT_EQ(ProtoWriter().message(3, [](ProtoWriter& inner) { inner.number(1, 150); }).bytes(),
            std::string("\x1a\x03\x08\x96\x01"));
}

TEST(ProtoWriter, DefaultsAreOmittedExceptElementsAndMessages) {
  EXPECT_EQ(ProtoWriter().number(1, 0).text(2, "").bytes(), "");
  EXPECT_EQ(ProtoWriter().element(1, "").bytes(), std::string("\x0a\x00", 2));
  EXPECT_EQ(ProtoWriter().message(1, [](ProtoWriter&) {}).bytes(), std::string("\x0a\x00", 2));
}

TEST(ProtoWriter, ZigZagAndDoublesMatchTheEncodingGuide) {
  EXPECT_EQ(ProtoWriter().sint64(1, -1).bytes(), std::string("\x08\x01"));
  EXPECT_EQ(ProtoWriter().sint64(1, 1).bytes(), std::string("\x08\x02"));
  EXPECT_EQ(ProtoWriter().sint64(1, 0).bytes(), std::string("\x08\0", 2));
  EXPECT_EQ(ProtoWriter().real64(1, 1.5).bytes(), std::string("\x09\0\0\0\0\0\0\xF8\x3F", 9));
}

TEST(ProtoReader, ZigZagAndDoublesReadBackTheSame) {
  constexpr std::int64_t kNumbers[] = {0,
                                       1,
                                       -1,
                                       2147483647,
                                       std::numeric_limits<std::int64_t>::max(),
                                       std::numeric_limits<std::int64_t>::min()};
  for (const std::int64_t number : kNumbers) {
    const std::string bytes = ProtoWriter().sint64(8, number).real64(1, 0.1).bytes();
    ProtoReader in(bytes);
    ASSERT_TRUE(in.next());
    EXPECT_EQ(in.sint64(), number);
    EXPECT_EQ(in.real64(), 0);
    ASSERT_TRUE(in.next());
    EXPECT_EQ(in.real64(), 0.1);
    EXPECT_EQ(in.sint64(), 0);
  }
}

TEST(ProtoReader, WrittenFieldsReadBackTheSame) {
  constexpr std::int64_t kNumbers[] = {1,
                                       -1,
                                       127,
                                       128,
                                       std::numeric_limits<std::int64_t>::max(),
                                       std::numeric_limits<std::int64_t>::min()};
  ProtoWriter out;
  for (const std::int64_t number : kNumbers) out.number(100000, number);
  out.entry(7, "key", "value").entry(7, "", "");
  ProtoReader in(out.bytes());
  for (const std::int64_t number : kNumbers) {
    ASSERT_TRUE(in.next());
    EXPECT_EQ(in.field(), 100000u);
    EXPECT_EQ(in.number(), number);
  }
  ASSERT_TRUE(in.next());
  EXPECT_EQ(in.entry(), std::pair(std::string("key"), std::string("value")));
  ASSERT_TRUE(in.next());
  EXPECT_EQ(in.entry(), std::pair(std::string(), std::string()));
  EXPECT_FALSE(in.next());
  EXPECT_TRUE(in.status().ok());
}

TEST(ProtoReader, FieldOfAnotherTypeReadsAsDefault) {
  ProtoReader in(
      "\x08\x05\x12\x01x\x1d"
      "abcd"
      "\x21"
      "abcdefgh");
  ASSERT_TRUE(in.next());
  EXPECT_EQ(in.bytes(), "");
  EXPECT_EQ(in.number(), 5);
  ASSERT_TRUE(in.next());
  EXPECT_EQ(in.number(), 0);
  EXPECT_EQ(in.text(), "x");
  for (const std::uint32_t field : {3u, 4u}) {
    ASSERT_TRUE(in.next());
    EXPECT_EQ(in.field(), field);
    EXPECT_EQ(in.number(), 0);
    EXPECT_EQ(in.bytes(), "");
  }
  EXPECT_FALSE(in.next());
  EXPECT_TRUE(in.status().ok());
}

TEST(ProtoReader, PackedNumbersAreReadOneByOne) {
  ProtoReader in("\x32\x06\x03\x8E\x02\x9E\xA7\x05");  // the encoding guide's example
  ASSERT_TRUE(in.next());
  EXPECT_TRUE(in.is_bytes());
  std::vector<std::int64_t> numbers;
  ProtoReader packed(in.bytes());
  while (packed.next_number()) {
    EXPECT_TRUE(packed.is_number());
    numbers.push_back(packed.number());
  }
  EXPECT_TRUE(packed.status().ok());
  EXPECT_EQ(numbers, (std::vector<std::int64_t>{3, 270, 86942}));

  ProtoReader broken("\x03\x8E");
  EXPECT_TRUE(broken.next_number());
  EXPECT_FALSE(broken.next_number());
  EXPECT_EQ(broken.status().error().code(), Code::kInvalid);
}

TEST(ProtoReader, RawFieldsMakeTheSameMessage) {
  ProtoWriter message;
  message.item(1, 0).real(2, 0.5f).element(3, "").number(4, -1).element(3, "x");
  const std::string bytes = message.bytes();
  std::string same;
  ProtoReader in(bytes);
  std::vector<float> reals;
  while (in.next()) {
    same += in.raw();
    if (in.is_real()) reals.push_back(in.real());
    EXPECT_EQ(in.is_real(), in.field() == 2);
  }
  EXPECT_TRUE(in.status().ok());
  EXPECT_EQ(same, bytes);
  EXPECT_EQ(ProtoWriter().raw(same).bytes(), bytes);
  EXPECT_EQ(reals, std::vector<float>{0.5f});
}

TEST(ProtoReader, BrokenBytesEndTheIteration) {
  const std::vector<std::string> cases = {
      std::string("\x08"),
      std::string("\x12\x05four"),
      std::string("\x00\x01", 2),
      std::string("\x0b"),
      std::string("\x0d"
                  "abc"),
      std::string(11, '\xff'),
      std::string("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")};
  for (const std::string& bytes : cases) {
    ProtoReader in(bytes);
    while (in.next()) {
    }
    EXPECT_EQ(in.status().error().code(), Code::kInvalid);
    EXPECT_FALSE(in.next());
  }
}

}  // namespace
}  // namespace varda::codec
