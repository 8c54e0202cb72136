#include "codec/text.h"

#include <gtest/gtest.h>

namespace varda::codec {
namespace {

using namespace std::literals;

TEST(Text, OverlongAndInvalidUtf8IsRefused) {
  for (const std::string_view text :
       {""sv, "a\0b"sv, "\xC3\xA4"sv, "\xE2\x82\xAC"sv, "\xF0\x9F\x98\x80"sv, "\xF4\x8F\xBF\xBF"sv})
    EXPECT_TRUE(is_utf8(text)) << text;
  for (const std::string_view text : {"\xFF"sv, "a\x80"sv, "\xC3"sv, "\xC0\x80"sv, "\xE0\x80\xAF"sv,
                                      "\xED\xA0\x80"sv, "\xF0\x9F\x98"sv, "\xF4\x90\x80\x80"sv})
    EXPECT_FALSE(is_utf8(text)) << text.size();
}

TEST(Text, LengthCountsCharacters) {
  EXPECT_EQ(utf8_length(""), 0u);
  EXPECT_EQ(utf8_length("a\xC3\xA4\xF0\x9F\x98\x80"), 3u);
}

TEST(Text, QuotesFollowJson) { EXPECT_EQ(quote("a\"\n\\"), R"("a\"\n\\")"); }

TEST(Text, ClippedTextEndsWithAWholeCharacter) {
  EXPECT_EQ(clipped("abc", 3), "abc");
  EXPECT_EQ(clipped("abc", 2), "ab");
  EXPECT_EQ(clipped("a\xC3\xA4", 2), "a");
  EXPECT_EQ(clipped("\xF0\x9F\x98\x80", 3), "");
}

}  // namespace
}  // namespace varda::codec
