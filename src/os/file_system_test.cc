// One suite for all file systems, so that the fakes match the machine.
#include "os/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "os/testing/crashing_file_system.h"
#include "os/testing/memory_file_system.h"

namespace varda::os {
namespace {

using testing::CrashingFileSystem;
using ::testing::ElementsAre;
using testing::MemoryFileSystem;

enum class Which { kReal, kMemory, kCrashing };

class FileSystems : public ::testing::TestWithParam<Which> {
 protected:
  void SetUp() override {
    if (GetParam() != Which::kReal) {
      root_ = "/data";
    } else {
      std::string pattern = ::testing::TempDir() + "os_test_XXXXXX";
      ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
      root_ = pattern;
    }
    ASSERT_TRUE(fs().make_directories(root_).ok());
  }
  void TearDown() override { ASSERT_TRUE(fs().remove_all(root_).ok()); }

  FileSystem& fs() {
    if (GetParam() == Which::kReal) return real_file_system();
    return GetParam() == Which::kMemory ? static_cast<FileSystem&>(memory_) : crashing_;
  }
  void write(const Path& path, std::string_view bytes) {
    auto file = fs().open(path, Open::kTruncate);
    ASSERT_TRUE(file.ok()) << file.error();
    ASSERT_TRUE((*file)->write(bytes).ok());
  }
  std::string read(const Path& path) { return read_file(fs(), path).value_or("<error>"); }

  Path root_;
  MemoryFileSystem memory_;
  CrashingFileSystem crashing_;
};

std::string name_of(const ::testing::TestParamInfo<Which>& which) {
  if (which.param == Which::kReal) return "Real";
  return which.param == Which::kMemory ? "Memory" : "Crashing";
}
INSTANTIATE_TEST_SUITE_P(All, FileSystems,
                         ::testing::Values(Which::kReal, Which::kMemory, Which::kCrashing),
                         name_of);

TEST_P(FileSystems, AllocatedFileHasItsSizeAndOnlyZeros) {
  write(root_ / "a", "before");
  ASSERT_TRUE(fs().allocate(root_ / "a", 5000, 0600).ok());
  EXPECT_EQ(fs().stat(root_ / "a").value()->size_bytes, 5000u);
  EXPECT_EQ(read(root_ / "a"), std::string(5000, '\0'));
}

TEST_P(FileSystems, OnlyLeftoversOfAtomicWritesAreRemoved) {
  ASSERT_TRUE(fs().make_directories(root_ / "x.tmp1-1").ok());
  for (const char* name : {"a", "a.tmp12-0", "b.key.tmp4711-32", "a.tmp", "a.tmp-1", "a.tmp1-",
                           "a.tmp1-2x", ".tmp1-2", "a.tmp1"})
    write(root_ / name, name);
  ASSERT_TRUE(remove_leftovers(fs(), root_).ok());
  EXPECT_THAT(fs().list(root_).value(), ElementsAre(".tmp1-2", "a", "a.tmp", "a.tmp-1", "a.tmp1",
                                                    "a.tmp1-", "a.tmp1-2x", "x.tmp1-1"));
  EXPECT_TRUE(remove_leftovers(fs(), root_ / "missing").ok());
  EXPECT_TRUE(remove_leftovers(fs(), root_ / "a").ok());
  if (GetParam() != Which::kReal) return;  // the fakes normalize the dot away
  write(root_ / "a.tmp12-0", "x");
  ASSERT_TRUE(fs().symlink(root_, root_ / "link").ok());
  ASSERT_TRUE(remove_leftovers(fs(), root_ / "link").ok());
  EXPECT_FALSE(fs().stat(root_ / "a.tmp12-0").value());
}

TEST_P(FileSystems, WrittenBytesAreReadBack) {
  write(root_ / "a", "hello");
  EXPECT_EQ(read(root_ / "a"), "hello");
  auto file = fs().open(root_ / "a", Open::kCreate).value();
  ASSERT_TRUE(file->seek(4).ok());
  ASSERT_TRUE(file->write("p!").ok());
  EXPECT_EQ(file->size().value(), 6u);
  ASSERT_TRUE(file->truncate(5).ok());
  EXPECT_EQ(read(root_ / "a"), "hellp");
}

TEST_P(FileSystems, OpenReportsMissingAndExistingFiles) {
  EXPECT_EQ(fs().open(root_ / "a", Open::kRead).error().code(), Code::kNotFound);
  EXPECT_TRUE(fs().open(root_ / "a", Open::kExclusive).ok());
  EXPECT_EQ(fs().open(root_ / "a", Open::kExclusive).error().code(), Code::kAlreadyExists);
  EXPECT_EQ(fs().open(root_ / "no" / "a", Open::kCreate).error().code(), Code::kNotFound);
}

TEST_P(FileSystems, OpenDoesNotFollowALinkInTheLastComponent) {
  write(root_ / "a", "secret");
  ASSERT_TRUE(fs().symlink("a", root_ / "link").ok());
  EXPECT_EQ(fs().open(root_ / "link", Open::kRead).error().code(), Code::kInvalid);
  EXPECT_EQ(fs().read_link(root_ / "link").value(), "a");
  EXPECT_EQ(fs().stat(root_ / "link").value()->kind, FileKind::kSymlink);
}

TEST_P(FileSystems, LinksInTheMiddleOfAPathAreFollowed) {
  ASSERT_TRUE(fs().make_directories(root_ / "real").ok());
  ASSERT_TRUE(fs().symlink("real", root_ / "alias").ok());
  write(root_ / "alias" / "a", "x");
  EXPECT_EQ(read(root_ / "real" / "a"), "x");
}

TEST_P(FileSystems, RenameReplacesAFileAndMovesATree) {
  write(root_ / "a", "new");
  write(root_ / "b", "old");
  ASSERT_TRUE(fs().rename(root_ / "a", root_ / "b").ok());
  EXPECT_EQ(read(root_ / "b"), "new");
  EXPECT_FALSE(fs().stat(root_ / "a").value());
  ASSERT_TRUE(fs().make_directories(root_ / "tree" / "deep").ok());
  write(root_ / "tree" / "deep" / "x", "1");
  ASSERT_TRUE(fs().rename(root_ / "tree", root_ / "moved").ok());
  EXPECT_EQ(read(root_ / "moved" / "deep" / "x"), "1");
  ASSERT_TRUE(fs().make_directories(root_ / "other").ok());
  EXPECT_EQ(fs().rename(root_ / "other", root_ / "moved").error().code(), Code::kAlreadyExists);
}

TEST_P(FileSystems, HardLinksShareBytesAndAreCounted) {
  write(root_ / "a", "x");
  ASSERT_TRUE(fs().link(root_ / "a", root_ / "b").ok());
  EXPECT_EQ(fs().stat(root_ / "a").value()->links, 2u);
  EXPECT_EQ(fs().stat(root_ / "a").value()->inode, fs().stat(root_ / "b").value()->inode);
  ASSERT_TRUE(fs().remove(root_ / "a").ok());
  EXPECT_EQ(read(root_ / "b"), "x");
  EXPECT_EQ(fs().stat(root_ / "b").value()->links, 1u);
}

TEST_P(FileSystems, ListIsSortedAndRemoveIgnoresMissingPaths) {
  write(root_ / "b", "");
  write(root_ / "a", "");
  ASSERT_TRUE(fs().make_directories(root_ / "c" / "d").ok());
  EXPECT_THAT(fs().list(root_).value(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(fs().remove(root_ / "c").error().code(), Code::kAlreadyExists);
  EXPECT_TRUE(fs().remove_all(root_ / "c").ok());
  EXPECT_TRUE(fs().remove(root_ / "nothing").ok());
  EXPECT_TRUE(fs().remove_all(root_ / "nothing").ok());
  EXPECT_EQ(fs().list(root_ / "nothing").error().code(), Code::kNotFound);
}

TEST_P(FileSystems, RemoveAllDoesNotFollowLinks) {
  ASSERT_TRUE(fs().make_directories(root_ / "keep").ok());
  write(root_ / "keep" / "a", "x");
  ASSERT_TRUE(fs().make_directories(root_ / "gone").ok());
  ASSERT_TRUE(fs().symlink((root_ / "keep").string(), root_ / "gone" / "link").ok());
  ASSERT_TRUE(fs().remove_all(root_ / "gone").ok());
  EXPECT_EQ(read(root_ / "keep" / "a"), "x");
}

TEST_P(FileSystems, AtomicWriteLeavesOnlyTheFile) {
  ASSERT_TRUE(write_file_atomically(fs(), root_ / "a", "one", 0600).ok());
  ASSERT_TRUE(write_file_atomically(fs(), root_ / "a", "two", 0600).ok());
  EXPECT_EQ(read(root_ / "a"), "two");
  EXPECT_EQ(fs().stat(root_ / "a").value()->mode, 0600u);
  EXPECT_THAT(fs().list(root_).value(), ElementsAre("a"));
}

TEST_P(FileSystems, ReadFileRefusesMoreThanAllowed) {
  write(root_ / "a", "12345");
  EXPECT_EQ(read_file(fs(), root_ / "a", 4).error().code(), Code::kExhausted);
  EXPECT_TRUE(read_file(fs(), root_ / "a", 5).ok());
}

TEST(MemoryFileSystemFaults, FaultDuringAnAtomicWriteLeavesTheOldOrNewFile) {
  for (int nth = 1; nth < 20; ++nth) {
    MemoryFileSystem fs;
    ASSERT_TRUE(write_file_atomically(fs, "/a", "old").ok());
    fs.fail_nth(nth);
    const Status written = write_file_atomically(fs, "/a", "new");
    fs.on_call(nullptr);
    const std::string now = read_file(fs, "/a").value();
    if (written.ok()) {
      EXPECT_EQ(now, "new");
      EXPECT_GT(nth, 4);  // open, write, sync, rename and the directory's sync all failed once
      return;
    }
    EXPECT_TRUE(now == "old" || now == "new") << now;
    EXPECT_THAT(fs.list("/").value(), ElementsAre("a"));
  }
  FAIL() << "never succeeded";
}

TEST(MemoryFileSystemFaults, FullDiskReturnsExhausted) {
  MemoryFileSystem fs(10);
  EXPECT_EQ(write_file_atomically(fs, "/a", "12345678901").error().code(), Code::kExhausted);
  EXPECT_TRUE(write_file_atomically(fs, "/a", "1234567890").ok());
  EXPECT_EQ(fs.space("/").value().available_bytes, 0u);
}

TEST(FileLockTest, SecondHolderGetsThePidOfTheFirst) {
  const Path path = ::testing::TempDir() + "os_lock_test" + std::to_string(::getpid());
  auto first = FileLock::acquire(path);
  ASSERT_TRUE(first.ok()) << first.error();
  const auto second = FileLock::acquire(path);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), Code::kUnavailable);
  EXPECT_THAT(second.error().message(), ::testing::HasSubstr(std::to_string(::getpid())));
  first.value().reset();
  EXPECT_TRUE(FileLock::acquire(path).ok());
  (void)real_file_system().remove(path);
}

}  // namespace
}  // namespace varda::os
