#include "replica/snapshot.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "replica/difference.h"
#include "replica/testing/files.h"

namespace varda::replica {
namespace snapshot_test {

using testing::Files;
using testing::snapshot_of;

constexpr std::uint32_t kBlock = 1024;

TEST(Snapshot, EncodedSnapshotReadsBackTheSame) {
  const Snapshot snapshot = snapshot_of(
      {{"a", ""}, {"b.txt", "1"}, {"b/c", std::string(1024, 'x')}, {"b/d", std::string(2049, 'y')}},
      kBlock);
  EXPECT_EQ(snapshot.files[1].path, "b/c");  // before "b.txt"
  const auto read = Snapshot::decode(snapshot.encode());
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_EQ(*read, snapshot);
  EXPECT_EQ(read->bytes(), 1024u + 2049u + 1u);
  EXPECT_EQ(snapshot.files[2].blocks.size(), 3u);
}

TEST(Snapshot, SingleFileSnapshotHasAnEmptyPath) {
  const Snapshot snapshot = snapshot_of({{"", "bytes"}}, kBlock);
  EXPECT_EQ(Snapshot::decode(snapshot.encode()).value(), snapshot);
}

TEST(Snapshot, AnyChangeGivesAnotherId) {
  const Snapshot one = snapshot_of({{"a", "1"}}, kBlock);
  EXPECT_NE(one.id(), snapshot_of({{"a", "2"}}, kBlock).id());
  EXPECT_NE(one.id(), snapshot_of({{"b", "1"}}, kBlock).id());
  EXPECT_NE(one.id(), snapshot_of({{"a", "1"}}, 2048).id());
  EXPECT_NE(one.id(), snapshot_of({{"a", "1"}, {"b", ""}}, kBlock).id());
}

struct Hostile {
  const char* name;
  std::vector<std::string> paths;
  const char* message;
};

class SnapshotHostile : public ::testing::TestWithParam<Hostile> {};

TEST_P(SnapshotHostile, PathsAreRefused) {
  Snapshot snapshot{.block_bytes = kBlock, .files = {}};
  for (const std::string& path : GetParam().paths)
    snapshot.files.push_back({.path = path, .size = 0, .blocks = {}});
  const auto read = Snapshot::decode(snapshot.encode());
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code(), Code::kInvalid);
  EXPECT_NE(read.error().message().find(GetParam().message), std::string::npos) << read.error();
}

INSTANTIATE_TEST_SUITE_P(
    Paths, SnapshotHostile,
    ::testing::Values(Hostile{"up", {"../x"}, "component .."},
                      Hostile{"up_inside", {"a/../../x"}, "component .."},
                      Hostile{"up_at_the_end", {"a/.."}, "component .."},
                      Hostile{"dot", {"./a"}, "component ."},
                      Hostile{"absolute", {"/etc/passwd"}, "empty component"},
                      Hostile{"twice", {"a//b"}, "empty component"},
                      Hostile{"slash_at_the_end", {"a/"}, "empty component"},
                      Hostile{"nul", {std::string("a\0b", 3)}, "zero byte"},
                      Hostile{"long_name", {std::string(256, 'a')}, "255"},
                      Hostile{"long", {std::string(2000, 'a')}, "1024"},
                      Hostile{"same", {"a", "a"}, "is not sorted after"},
                      Hostile{"order", {"b", "a"}, "is not sorted after"},
                      Hostile{"file_and_folder", {"a", "a/b"}, "a file and a folder"},
                      Hostile{"single_and_more", {"", "a"}, "a file and a folder"}),
    [](const auto& one) { return one.param.name; });

TEST(Snapshot, EveryPrefixIsRefusedOrAShorterSnapshot) {
  const std::string text =
      snapshot_of({{"a", std::string(1500, 'x')}, {"b", "y"}}, kBlock).encode();
  for (std::size_t length = 0; length < text.size(); ++length) {
    const auto read = Snapshot::decode(std::string_view(text).substr(0, length));
    if (read.ok()) {
      EXPECT_LT(read->files.size(), 2u);
    }
  }
}

TEST(Snapshot, ImpossibleFileSizeIsRefused) {
  Snapshot snapshot = snapshot_of({{"a", ""}}, kBlock);
  std::string text = snapshot.encode();
  text[text.size() - 5] = 1;  // the size becomes about 2^24, but no block follows
  EXPECT_EQ(Snapshot::decode(text).error().code(), Code::kInvalid);
  text[text.size() - 1] = 0x7f;
  EXPECT_EQ(Snapshot::decode(text).error().code(), Code::kExhausted);
}

TEST(Snapshot, LimitsOnFilesAndBlocksApply) {
  const std::string text =
      snapshot_of({{"a", std::string(5000, 'x')}, {"b", "y"}}, kBlock).encode();
  EXPECT_EQ(Snapshot::decode(text, {.files_max = 1}).error().code(), Code::kExhausted);
  EXPECT_EQ(Snapshot::decode(text, {.blocks_max = 5}).error().code(), Code::kExhausted);
  EXPECT_TRUE(Snapshot::decode(text, {.files_max = 2, .blocks_max = 6}).ok());
}

TEST(Snapshot, InvalidBlockLengthsAreRefused) {
  for (const std::uint32_t bytes : {0u, 1u, 512u, 1000u, 3u << 20, 32u << 20}) {
    std::string text = Snapshot{.block_bytes = 1024, .files = {}}.encode();
    for (std::size_t i = 0; i < 4; ++i)
      text[text.size() - 4 + i] = static_cast<char>(bytes >> (8 * i) & 0xff);
    EXPECT_EQ(Snapshot::decode(text).error().code(), Code::kInvalid) << bytes;
  }
}

std::string block(char c) { return std::string(kBlock, c); }

TEST(Difference, MissingFileIsFetchedInRunsOfLimitedLength) {
  const Snapshot wanted = snapshot_of({{"a", block('1') + block('2') + block('3') + "4"}}, kBlock);
  const auto plans = difference({.block_bytes = kBlock, .files = {}}, wanted, 3);
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0].runs,
            (std::vector<BlockRun>{{.first = 0, .count = 3}, {.first = 3, .count = 1}}));
  EXPECT_EQ(plans[0].fetch_bytes, 3 * kBlock + 1);
}

TEST(Difference, GrownFileIsFetchedFromItsLastWholeBlock) {
  const Snapshot have = snapshot_of({{"a", block('1') + block('2') + "tail"}}, kBlock);
  const Snapshot wanted = snapshot_of({{"a", block('1') + block('2') + "tail and more"}}, kBlock);
  const auto plans = difference(have, wanted);
  EXPECT_EQ(plans[0].runs, (std::vector<BlockRun>{
                               {.first = 0, .count = 2, .fetch = false, .file = 0, .from_block = 0},
                               {.first = 2, .count = 1}}));
  EXPECT_EQ(plans[0].fetch_bytes, 13u);
}

TEST(Difference, MovedFilesAreLinked) {
  const Snapshot have = snapshot_of({{"a", block('1') + "x"}, {"b", ""}}, kBlock);
  const Snapshot wanted = snapshot_of({{"c", block('1') + "x"}, {"d", ""}}, kBlock);
  const auto plans = difference(have, wanted);
  EXPECT_TRUE(plans[0].link);
  EXPECT_EQ(plans[0].from, 0u);
  EXPECT_TRUE(plans[1].link);
  EXPECT_EQ(plans[1].from, 1u);
}

TEST(Difference, BlocksOfAnotherLengthAreNotReused) {
  const std::string bytes = block('1');
  EXPECT_FALSE(
      difference(snapshot_of({{"a", bytes}}, 2048), snapshot_of({{"a", bytes}}, kBlock))[0].link);
}

// For any input, the runs cover the file in order, and copied blocks have the right digests.
TEST(Difference, RunsCoverEveryBlockOnce) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const auto rng = seeded_rng(seed);
    const auto random_files = [&] {
      Files files;
      for (std::uint64_t i = 0, count = rng->below(4); i < count; ++i) {
        std::string bytes;
        for (std::uint64_t b = 0, blocks = rng->below(6); b < blocks; ++b)
          bytes += block(static_cast<char>('0' + rng->below(4)));
        files[std::string(1, static_cast<char>('a' + rng->below(5)))] =
            bytes + std::string(rng->below(3), 'e');
      }
      return files;
    };
    const Snapshot have = snapshot_of(random_files(), kBlock),
                   wanted = snapshot_of(random_files(), kBlock);
    const auto plans = difference(have, wanted, 2);
    ASSERT_EQ(plans.size(), wanted.files.size());
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const SnapshotFile& file = wanted.files[i];
      if (plans[i].link) {
        EXPECT_EQ(have.files[plans[i].from].blocks, file.blocks);
        EXPECT_EQ(have.files[plans[i].from].size, file.size);
        continue;
      }
      std::uint64_t next = 0;
      for (const BlockRun& run : plans[i].runs) {
        ASSERT_EQ(run.first, next) << "seed " << seed;
        ASSERT_GT(run.count, 0u);
        if (!run.fetch) {
          for (std::uint64_t b = 0; b < run.count; ++b)
            ASSERT_EQ(have.files[run.file].blocks[run.from_block + b], file.blocks[run.first + b])
                << "seed " << seed;
        }
        next += run.count;
      }
      ASSERT_EQ(next, file.blocks.size()) << "seed " << seed;
    }
  }
}

}  // namespace snapshot_test
}  // namespace varda::replica
