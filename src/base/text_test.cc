#include "base/text.h"

#include <cstdint>
#include <gtest/gtest.h>

namespace varda {
namespace text_test {

using std::chrono::milliseconds;
using Parts = std::vector<std::string_view>;

TEST(Text, OnlyAsciiLettersHaveCase) {
  EXPECT_EQ(lower("AZaz09@[Ä"), "azaz09@[Ä");
  EXPECT_TRUE(equal_ignoring_case("Content-Type", "content-TYPE"));
  EXPECT_FALSE(equal_ignoring_case("a", "ab"));
  EXPECT_FALSE(equal_ignoring_case("[", "{"));
  EXPECT_TRUE(starts_ignoring_case("X-Amz-Date", "x-amz-"));
  EXPECT_FALSE(starts_ignoring_case("X-Am", "x-amz-"));
}

TEST(Text, TrimRemovesBlanksAtBothEnds) {
  EXPECT_EQ(trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
  EXPECT_EQ(trim(""), "");
  EXPECT_EQ(trim("\n a ", " "), "\n a");
}

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("a,b,,c", ','), (Parts{"a", "b", "", "c"}));
  EXPECT_EQ(split("", ','), (Parts{""}));
  EXPECT_EQ(split(",", ','), (Parts{"", ""}));
}

TEST(Text, JoinIsTheInverseOfSplit) {
  EXPECT_EQ(join(Parts{}), "");
  EXPECT_EQ(join(Parts{"a", "", "c"}), "a, , c");
  EXPECT_EQ(join(std::vector<std::string>{"", "b"}, ","), ",b");
  EXPECT_EQ(join(std::vector<int>{1, 2}, "; ", [](int n) { return std::to_string(n); }), "1; 2");
}

TEST(Text, IntegersMustFillTheWholeText) {
  EXPECT_EQ(parse_integer<int>("-12"), -12);
  EXPECT_EQ(parse_integer<std::uint64_t>("18446744073709551615"), 18446744073709551615u);
  for (const char* wrong : {"", "-", "+1", " 1", "1 ", "0x1", "1.0", "99999999999"})
    EXPECT_FALSE(parse_integer<int>(wrong)) << wrong;
  EXPECT_FALSE(parse_integer<unsigned>("-1"));
}

TEST(Text, DurationsNeedAUnit) {
  EXPECT_EQ(parse_duration("300ms"), milliseconds(300));
  EXPECT_EQ(parse_duration("2s"), milliseconds(2000));
  EXPECT_EQ(parse_duration("10m"), milliseconds(600'000));
  EXPECT_EQ(parse_duration("1h"), milliseconds(3'600'000));
  EXPECT_EQ(parse_duration("999999999d"), milliseconds(86'400'000 * std::int64_t{999'999'999}));
  for (const char* wrong : {"", "5", "s", "-1s", "1.5s", "1 s", "1s ", "1h30m", "1234567890s"})
    EXPECT_FALSE(parse_duration(wrong)) << wrong;
}

}  // namespace text_test
}  // namespace varda
