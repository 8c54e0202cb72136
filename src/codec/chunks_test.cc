#include "codec/chunks.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

#include "base/rng.h"

namespace varda::codec {
namespace chunks_test {

std::string noise(std::size_t size, std::uint64_t seed) {
  std::string bytes(size, '\0');
  const auto rng = seeded_rng(seed);
  for (char& c : bytes) c = static_cast<char>(rng->below(256));
  return bytes;
}

std::vector<Chunk> split(std::string_view bytes, std::size_t piece = 1 << 20) {
  std::vector<Chunk> chunks;
  ChunkSplitter splitter([&chunks](const Chunk& chunk) { chunks.push_back(chunk); });
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size())))
    splitter.update(bytes.substr(0, piece));
  splitter.finish();
  return chunks;
}

ChunkList list_of(std::string_view bytes) {
  return {bytes.size(), Sha256::of(bytes), split(bytes)};
}

/// Bytes of `after` in chunks that `before` lacks.
std::uint64_t new_bytes(const std::string& before, const std::string& after) {
  std::set<ChunkHash> known;
  for (const Chunk& chunk : split(before)) known.insert(chunk.hash);
  std::uint64_t sum = 0;
  for (const Chunk& chunk : split(after)) sum += known.contains(chunk.hash) ? 0 : chunk.bytes;
  return sum;
}

TEST(Chunks, ChunksAddUpAndStayWithinTheLimits) {
  for (const std::string& bytes : {noise(4 << 20, 1), std::string(1 << 20, 'x'), noise(100, 2),
                                   noise(kChunkBytesMin, 3), std::string()}) {
    const std::vector<Chunk> chunks = split(bytes);
    std::size_t at = 0;
    for (const Chunk& chunk : chunks) {
      EXPECT_LE(chunk.bytes, kChunkBytesMax);
      if (at + chunk.bytes < bytes.size()) {
        EXPECT_GE(chunk.bytes, kChunkBytesMin);
      }
      EXPECT_EQ(chunk.hash, chunk_hash(std::string_view(bytes).substr(at, chunk.bytes)));
      at += chunk.bytes;
    }
    EXPECT_EQ(at, bytes.size());
  }
}

TEST(Chunks, AverageSizeIsNearTheAimSoThatAListStaysSmall) {
  const std::string bytes = noise(16 << 20, 4);
  const ChunkList list = list_of(bytes);
  const std::size_t average = bytes.size() / list.chunks.size();
  EXPECT_GT(average, kChunkBytesAverage * 3 / 4);
  EXPECT_LT(average, kChunkBytesAverage * 5 / 4);
  EXPECT_LT(write_chunk_list(list).size() * 1000, bytes.size());
}

TEST(Chunks, CutsDoNotDependOnThePieces) {
  const std::string bytes = noise(300'000, 5);
  const std::vector<Chunk> whole = split(bytes);
  for (const std::size_t piece : {1u, 7u, 4096u, 70'000u})
    EXPECT_EQ(split(bytes, piece), whole) << piece;
}

TEST(Chunks, InsertionsAndDeletionsChangeOnlyTheChunksAroundThem) {
  const std::string before = noise(4 << 20, 6);
  const auto rng = seeded_rng(7);
  for (int i = 0; i < 20; ++i) {
    const std::size_t at = rng->below(before.size()), count = 1 + rng->below(5000);
    EXPECT_LE(new_bytes(before, std::string(before).insert(at, noise(count, 8 + rng->below(9)))),
              count + 3 * kChunkBytesMax);
    EXPECT_LE(new_bytes(before, std::string(before).erase(at, count)), 3 * kChunkBytesMax);
  }
}

// Nodes of another version of Varda must cut at the same places.
TEST(Chunks, CutsOfFixedBytesStayAsTheyAre) {
  std::string bytes(200'000, '\0');
  std::uint32_t state = 1;
  for (char& c : bytes) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  std::vector<std::uint32_t> sizes;
  for (const Chunk& chunk : split(bytes)) sizes.push_back(chunk.bytes);
  EXPECT_EQ(sizes, (std::vector<std::uint32_t>{43769, 33478, 28369, 17588, 27655, 28526, 20615}));
}

TEST(ChunkList, WrittenListIsReadBack) {
  for (const std::string& bytes : {noise(1 << 20, 9), noise(10, 10), std::string()}) {
    const ChunkList list = list_of(bytes);
    const auto read = parse_chunk_list(write_chunk_list(list));
    ASSERT_TRUE(read.ok()) << read.error();
    EXPECT_EQ(*read, list);
  }
}

TEST(ChunkList, MalformedListsAreRefused) {
  const ChunkList good = list_of(noise(300'000, 11));
  const std::string text = write_chunk_list(good);
  const auto refused = [](const std::string& bad, std::string_view why) {
    const auto read = parse_chunk_list(bad);
    ASSERT_FALSE(read.ok()) << why;
    EXPECT_EQ(read.error().code(), Code::kCorrupt);
    EXPECT_NE(read.error().message().find(why), std::string::npos) << read.error();
  };
  refused("", "unknown format");
  refused("<!doctype html>", "unknown format");
  refused("VARDACH2" + text.substr(8), "unknown format");
  refused(text.substr(0, 20), "truncated");
  refused(text.substr(0, text.size() - 1), "truncated");
  refused(text.substr(0, text.size() - 20), "add up");
  refused(text + text.substr(text.size() - 20), "not a usable");
  ChunkList bad = good;
  bad.bytes = UINT64_MAX;
  refused(write_chunk_list(bad), "add up");
  for (const std::uint32_t size : {std::uint32_t{0}, std::uint32_t{kChunkBytesMin - 1},
                                   std::uint32_t{kChunkBytesMax + 1}, UINT32_MAX}) {
    bad = good;
    bad.bytes += size - bad.chunks[0].bytes;
    bad.chunks[0].bytes = size;
    refused(write_chunk_list(bad), "size of a chunk");
  }
}

}  // namespace chunks_test
}  // namespace varda::codec
