#include "node/internal/cri_log.h"

#include <gtest/gtest.h>

namespace varda::node::internal {
namespace {

std::string all(CriLog& log, std::string_view file, std::size_t piece) {
  std::string out;
  for (std::size_t at = 0; at < file.size(); at += piece) out += log.take(file.substr(at, piece));
  return out + log.finish();
}

TEST(CriLog, CriPrefixesAreRemoved) {
  constexpr std::string_view kFile =
      "2026-01-31T12:00:00.123456789Z stdout F one\n"
      "2026-01-31T12:00:00.2+02:00 stderr P two and \n"
      "2026-01-31T12:00:00.3+02:00 stderr F a half\n"
      "2026-01-31T12:00:00Z stdout F \n"
      "2026-01-31T12:00:00Z stdout F:tag  spaces stay \n"
      "2026-01-31T12:00:00Z stdout P unfinished";
  for (const std::size_t piece : {1u, 2u, 7u, 64u, 4096u}) {
    CriLog log;
    EXPECT_EQ(all(log, kFile, piece), "one\ntwo and a half\n\n spaces stay \nunfinished") << piece;
  }
}

TEST(CriLog, LinesOfOtherFormatsAreUnchanged) {
  for (const char* text :
       {"cut off stdout F x\n", "\n", "2026-01-31T12:00:00Z stdin F x\n",
        "2026-01-31T12:00:00Z stdout X x\n", "2026-01-31T12:00:00Z stdout F", "just words"}) {
    CriLog log;
    EXPECT_EQ(all(log, text, 3), text);
  }
}

TEST(CriLog, EndlessLineIsNotBufferedForever) {
  CriLog log;
  const std::string piece(100'000, 'x');
  std::size_t output_bytes = 0;
  for (int i = 0; i < 30; ++i) output_bytes += log.take(piece).size();
  EXPECT_GE(output_bytes, 1'500'000u);
}

}  // namespace
}  // namespace varda::node::internal
