#include "codec/gzip.h"

#include <gtest/gtest.h>

namespace varda::codec {
namespace {

constexpr std::size_t kPlenty = 64u << 20;

TEST(GzipDecoder, AnyPieceSizeUnpacksTheSame) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "line " + std::to_string(i * 7919 % 1000) + "\n";
  const std::string packed = gzip(text);
  ASSERT_LT(packed.size(), text.size() / 2);
  for (const std::size_t piece :
       {std::size_t{1}, std::size_t{7}, std::size_t{4096}, packed.size()}) {
    const auto decoder = GzipDecoder::create();
    std::string out;
    for (std::size_t at = 0; at < packed.size(); at += piece) {
      EXPECT_FALSE(decoder->ended());
      const auto taken = decoder->feed(std::string_view(packed).substr(at, piece), out, kPlenty);
      ASSERT_TRUE(taken.ok()) << taken.error();
      EXPECT_EQ(*taken, std::min(piece, packed.size() - at));
    }
    EXPECT_TRUE(decoder->ended());
    EXPECT_EQ(out, text);
  }
}

TEST(GzipDecoder, DecoderStopsAtTheOutputLimitAndResumes) {
  const std::string bomb = gzip(std::string(32u << 20, 'x'));
  ASSERT_LT(bomb.size(), 64u << 10);
  const auto decoder = GzipDecoder::create();
  std::string_view rest = bomb;
  std::string out;
  for (const std::size_t max : {std::size_t{1000}, std::size_t{1} << 20}) {
    rest.remove_prefix(decoder->feed(rest, out, max).value());
    EXPECT_EQ(out.size(), max);
    EXPECT_FALSE(decoder->ended());
  }
  rest.remove_prefix(decoder->feed(rest, out, kPlenty).value());
  EXPECT_EQ(out.size(), 32u << 20);
  EXPECT_TRUE(decoder->ended());
}

TEST(GzipDecoder, DamagedDataIsRefusedAndTruncatedDataDoesNotEnd) {
  const std::string packed = gzip("some text, some text, some text");
  std::string out;
  EXPECT_EQ(GzipDecoder::create()->feed("<html>no gzip</html>", out, kPlenty).error().code(),
            Code::kCorrupt);
  std::string wrong = packed;
  wrong[packed.size() - 6] = static_cast<char>(wrong[packed.size() - 6] ^ 1);  // of the checksum
  EXPECT_EQ(GzipDecoder::create()->feed(wrong, out, kPlenty).error().code(), Code::kCorrupt);
  const auto decoder = GzipDecoder::create();
  EXPECT_TRUE(decoder->feed(packed.substr(0, packed.size() - 1), out, kPlenty).ok());
  EXPECT_FALSE(decoder->ended());
}

}  // namespace
}  // namespace varda::codec
