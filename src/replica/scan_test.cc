#include "replica/scan.h"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "replica/testing/files.h"

namespace varda::replica {
namespace scan_test {

using testing::Files;
using testing::snapshot_of;

constexpr std::uint32_t kBlock = 1024;
const Context kForever = Context::background();

class Scan : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "varda-scan-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    std::filesystem::create_directories(root_ / "data");
    auto tree = os::open_readable_tree({root_ / "data"});
    ASSERT_TRUE(tree.ok()) << tree.error();
    tree_ = std::move(tree).value();
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& bytes,
             std::ios::openmode how = std::ios::trunc) {
    std::filesystem::create_directories((root_ / "data" / path).parent_path());
    std::ofstream(root_ / "data" / path, std::ios::binary | how) << bytes;
  }
  /// Sets the file's time, because two quick writes of equal length may have equal facts.
  void touch(const std::string& path, int seconds) {
    const timespec times[2] = {{.tv_sec = 1'000'000'000 + seconds, .tv_nsec = 0},
                               {.tv_sec = 1'000'000'000 + seconds, .tv_nsec = 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, (root_ / "data" / path).c_str(), times, 0), 0);
  }
  Result<Taken> take(const Taken* before = nullptr, const std::string& path = "",
                     const Limits& limits = {}) {
    return take_snapshot(kForever, *tree_, path.empty() ? root_ / "data" : root_ / "data" / path,
                         before, limits, kBlock);
  }

  os::Path root_;
  std::unique_ptr<os::ReadableTree> tree_;
};

TEST_F(Scan, SnapshotContainsEveryFileBelowTheFolder) {
  const Files files{{"a", ""},
                    {"b/c", std::string(3000, 'x')},
                    {"b/d/e", "1"},
                    {"b.txt", std::string(1024, 'y')}};
  for (const auto& [path, bytes] : files) write(path, bytes);
  std::filesystem::create_directories(root_ / "data/empty");
  const auto taken = take();
  ASSERT_TRUE(taken.ok()) << taken.error();
  EXPECT_EQ(taken->snapshot, snapshot_of(files, kBlock));
  EXPECT_EQ(taken->bytes_read, 3000u + 1 + 1024);
  EXPECT_TRUE(Snapshot::decode(taken->snapshot.encode()).ok());
}

TEST_F(Scan, SnapshotOfAFileHasOneEntry) {
  write("a.csv", "1,2\n");
  EXPECT_EQ(take(nullptr, "a.csv")->snapshot, snapshot_of({{"", "1,2\n"}}, kBlock));
}

TEST_F(Scan, LinksAndDevicesAreOmitted) {
  write("a", "1");
  std::filesystem::create_symlink("/etc/passwd", root_ / "data/out");
  std::filesystem::create_symlink("a", root_ / "data/in");
  ASSERT_EQ(mkfifo((root_ / "data/pipe").c_str(), 0600), 0);
  EXPECT_EQ(take()->snapshot, snapshot_of({{"a", "1"}}, kBlock));
}

TEST_F(Scan, UnchangedFilesAreNotReadAgain) {
  write("a", std::string(5000, 'x'));
  write("b", "1");
  const auto first = take();
  write("b", "22");
  const auto second = take(&*first);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->bytes_read, 2u);
  EXPECT_EQ(second->snapshot, snapshot_of({{"a", std::string(5000, 'x')}, {"b", "22"}}, kBlock));
}

TEST_F(Scan, GrownFileIsReadAtItsEndsAndNewBytesOnly) {
  std::string bytes;
  for (int i = 0; i < 10; ++i) bytes += std::string(kBlock, static_cast<char>('a' + i));
  write("a", bytes + "tail");
  const auto first = take();
  write("a", "more", std::ios::app);
  const auto second = take(&*first);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->snapshot, snapshot_of({{"a", bytes + "tailmore"}}, kBlock));
  EXPECT_EQ(second->bytes_read, 2u * kBlock + 8);
}

TEST_F(Scan, StoredScanIsReusedAndTruncationIsDetected) {
  write("a", std::string(5000, 'x'));
  write("b/c", "1");
  const auto first = take();
  const std::string encoded = encode(*first);
  const auto read = decode_taken(encoded);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->snapshot, first->snapshot);
  EXPECT_EQ(read->facts, first->facts);
  EXPECT_EQ(take(&*read)->bytes_read, 0u);
  for (std::size_t length = 0; length < encoded.size(); ++length)
    EXPECT_FALSE(decode_taken(encoded.substr(0, length)));
  EXPECT_FALSE(decode_taken(encoded + "x"));
}

TEST_F(Scan, ReplacedLongerFileIsReadAgain) {
  write("a", std::string(3 * kBlock, 'x'));
  const auto first = take();
  write("b", std::string(4 * kBlock, 'y'));
  std::filesystem::rename(root_ / "data/b", root_ / "data/a");
  EXPECT_EQ(take(&*first)->snapshot, snapshot_of({{"a", std::string(4 * kBlock, 'y')}}, kBlock));
  write("a", std::string(5 * kBlock, 'z'));  // the same inode, with other bytes from the start
  const auto second = take();
  EXPECT_EQ(take(&*first)->snapshot, second->snapshot);
}

TEST_F(Scan, SameSizeChangeIsDetectedByTheChangeTime) {
  write("a", std::string(3000, 'x'));
  touch("a", 1);
  const auto first = take();
  std::string bytes(3000, 'x');
  bytes[1500] = 'y';
  write("a", bytes);
  touch("a", 1);  // the inode's change time still differs
  EXPECT_EQ(take(&*first)->snapshot, snapshot_of({{"a", bytes}}, kBlock));
}

TEST_F(Scan, LimitsAndMissingPathsAreErrors) {
  write("a/b", std::string(5000, 'x'));
  write("c", "1");
  EXPECT_EQ(take(nullptr, "", {.files_max = 1}).error().code(), Code::kExhausted);
  EXPECT_EQ(take(nullptr, "", {.blocks_max = 5}).error().code(), Code::kExhausted);
  EXPECT_TRUE(take(nullptr, "", {.files_max = 2, .blocks_max = 6}).ok());
  EXPECT_EQ(take(nullptr, "missing").error().code(), Code::kNotFound);
  EXPECT_EQ(take_snapshot(kForever, *tree_, "/etc").error().code(), Code::kForbidden);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(take_snapshot(Context(stop.get_token()), *tree_, root_ / "data").error().code(),
            Code::kCancelled);
}

}  // namespace scan_test
}  // namespace varda::replica
