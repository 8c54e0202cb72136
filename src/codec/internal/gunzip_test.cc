// The engine with a stream made by zlib (through libarchive): in any pieces, damaged, and truncated
// anywhere.
#include "codec/internal/gunzip.h"

#include <gtest/gtest.h>

namespace varda::codec::internal {
namespace gunzip_test {

ByteSource pieces(std::string bytes, std::size_t piece) {
  return [bytes = std::move(bytes), piece, at = std::size_t{0}]() mutable -> Result<std::string> {
    std::string part = bytes.substr(std::min(at, bytes.size()), piece);
    at += part.size();
    return part;
  };
}

Result<std::string> unpack(const std::string& bytes, std::size_t piece) {
  const auto gunzip = Gunzip::over(bytes.substr(0, 2), pieces(bytes.substr(2), piece));
  std::string out;
  while (true) {
    TRY(const std::string more, gunzip->read());
    if (more.empty()) return out;
    out += more;
  }
}

class GunzipTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Gunzip::over("", [] { return Result<std::string>(std::string()); }))
      GTEST_SKIP() << "this build has no ISA-L";
    plain_.resize(300'000);
    std::uint32_t state = 1;
    for (std::size_t i = 0; i < plain_.size(); ++i) {
      // Runs, noise and repeats: literals, near and far matches.
      state = state * 1664525 + 1013904223;
      plain_[i] = static_cast<char>(i % 3000 < 1000   ? 'x'
                                    : i % 3000 < 1500 ? state >> 24
                                                      : plain_[i - 700]);
    }
    packed_ = pack(plain_);
    // The output includes the enclosing tar archive.
    plain_ = unpack(packed_, 1 << 20).value();
  }
  static std::string pack(const std::string& bytes) {
    std::string out;
    auto writer = ArchiveWriter::create(ArchiveFormat::kTarGzip, [&](std::string_view more) {
      out += more;
      return ok_status();
    });
    EXPECT_TRUE((*writer)->add({.path = "a", .size_bytes = bytes.size(), .link_target = ""}).ok());
    EXPECT_TRUE((*writer)->write(bytes).ok());
    EXPECT_TRUE((*writer)->finish().ok());
    return out;
  }
  std::string plain_, packed_;
};

TEST_F(GunzipTest, PieceSizesAndMemberCountsDoNotChangeTheOutput) {
  ASSERT_GT(plain_.size(), 300'000u);
  EXPECT_EQ(plain_.substr(512, 1000), std::string(1000, 'x'));
  for (const std::size_t piece : {1, 2, 3, 5, 7, 8, 9, 64, 1000, 65536}) {
    EXPECT_EQ(*unpack(packed_, piece), plain_) << piece;
    EXPECT_EQ(*unpack(packed_ + packed_ + packed_, piece), plain_ + plain_ + plain_) << piece;
    EXPECT_EQ(*unpack(packed_ + packed_ + std::string(100, '\0'), piece), plain_ + plain_) << piece;
    EXPECT_EQ(*unpack(packed_ + "\x1F", piece), plain_) << piece;
  }
}

TEST_F(GunzipTest, DamageAtAnyByteIsDetected) {
  // Starts after the header, because its times and names are irrelevant.
  for (std::size_t at = 10; at < packed_.size(); at += at + 64 < packed_.size() ? 97 : 1) {
    std::string bad = packed_;
    bad[at] = static_cast<char>(~bad[at]);  // all bits: some final bits are padding
    const auto found = unpack(bad, 4096);
    ASSERT_FALSE(found.ok()) << "byte " << at;
    EXPECT_EQ(found.error().code(), Code::kCorrupt);
  }
}

TEST_F(GunzipTest, StreamThatEndsEarlyIsCorrupt) {
  for (std::size_t size = 2; size < packed_.size(); size += size + 64 < packed_.size() ? 997 : 1) {
    const auto found = unpack(packed_.substr(0, size), 4096);
    ASSERT_FALSE(found.ok()) << size << " bytes";
    EXPECT_EQ(found.error().code(), Code::kCorrupt);
  }
  EXPECT_FALSE(unpack(packed_ + packed_.substr(0, 100), 7).ok());
}

}  // namespace gunzip_test
}  // namespace varda::codec::internal
