#include "os/new_file.h"

#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "os/testing/child.h"

namespace varda::os {
namespace {

using os::testing::TestDirectory;
using ::testing::HasSubstr;

std::string read_back(NewFile& file) {
  std::string out;
  for (;;) {
    const std::string piece = file.read().value();
    if (piece.empty()) return out;
    out += piece;
  }
}

TEST(NewFile, KeepPublishesTheWholeFile) {
  const TestDirectory root;
  NewFile file = NewFile::create(root / "backup").value();
  ASSERT_TRUE(file.write("one ").ok());
  ASSERT_TRUE(file.write("").ok());
  ASSERT_TRUE(file.write(std::string(200'000, 'x')).ok());
  EXPECT_EQ(read_back(file), "one " + std::string(200'000, 'x'));
  EXPECT_EQ(root.all(), std::vector<std::string>());
  ASSERT_TRUE(file.keep().ok());
  EXPECT_EQ(root.all(), std::vector<std::string>{"backup"});
  EXPECT_EQ(root.read("backup"), "one " + std::string(200'000, 'x'));
  EXPECT_EQ(root.mode("backup"), 0600u);
}

TEST(NewFile, NoFileRemainsWithoutKeep) {
  const TestDirectory root;
  {
    NewFile file = NewFile::create(root / "backup").value();
    ASSERT_TRUE(file.write("bytes").ok());
    const NewFile moved = std::move(file);
  }
  EXPECT_EQ(root.all(), std::vector<std::string>());
}

TEST(NewFile, ExistingFilesAreNeverReplaced) {
  const TestDirectory root;
  root.write("file", "mine");
  std::filesystem::create_directory(root / "directory");
  std::filesystem::create_symlink("nowhere", root / "link");
  for (const char* name : {"file", "directory", "link"}) {
    const auto made = NewFile::create(root / name);
    ASSERT_FALSE(made.ok()) << name;
    EXPECT_EQ(made.error().code(), Code::kAlreadyExists) << name;
    EXPECT_THAT(made.error().message(), HasSubstr(std::string(name) + " exists already"));
  }
  NewFile file = NewFile::create(root / "late").value();
  ASSERT_TRUE(file.write("ours").ok());
  root.write("late", "mine");
  EXPECT_EQ(file.keep().error().code(), Code::kAlreadyExists);
  EXPECT_EQ(root.read("late"), "mine");
  EXPECT_EQ(root.read("file"), "mine");
}

TEST(NewFile, ParentDirectoryMustExist) {
  const TestDirectory root;
  EXPECT_EQ(NewFile::create(root / "missing/backup").error().code(), Code::kNotFound);
  root.write("file", "");
  EXPECT_FALSE(NewFile::create(root / "file/backup").ok());
}

TEST(NewFile, BareNamesAreRelativeToTheWorkingDirectory) {
  const TestDirectory root;
  const os::testing::Ended ended = os::testing::run_in_child([&] {
    if (::chdir(root.path().c_str()) != 0) return 1;
    auto file = NewFile::create("backup");
    return file.ok() && file->write("bytes").ok() && file->keep().ok() ? 0 : 2;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(root.read("backup"), "bytes");
}

TEST(NewFile, UnwritableDirectoryReturnsForbidden) {
  const TestDirectory root;
  std::filesystem::permissions(root.path(), std::filesystem::perms(0555));
  const os::testing::Ended ended = os::testing::run_in_child([&] {
    os::testing::become_ordinary_user();
    const auto made = NewFile::create(root / "backup");
    return made.ok() ? 1 : made.error().code() == Code::kForbidden ? 0 : 2;
  });
  std::filesystem::permissions(root.path(), std::filesystem::perms(0755));
  EXPECT_EQ(ended.code, 0);
}

// A limit on file sizes simulates a full disk. The program ignores SIGXFSZ too
// (os::stop_on_signals()).
TEST(NewFile, FullDiskReturnsExhaustedAndLeavesNoFile) {
  const TestDirectory root;
  const os::testing::Ended ended = os::testing::run_in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    auto file = NewFile::create(root / "backup");
    const rlimit limit{4096, 4096};
    if (!file.ok() || ::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    if (!file->write(std::string(4096, 'x')).ok()) return 2;
    const Status full = file->write("y");
    return full.ok() ? 3 : full.error().code() == Code::kExhausted ? 0 : 4;
  });
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(root.all(), std::vector<std::string>());
}

TEST(NewFile, KilledProcessLeavesNoFile) {
  const TestDirectory root;
  const os::testing::Ended ended = os::testing::run_in_child([&] {
    auto file = NewFile::create(root / "backup");
    if (!file.ok() || !file->write("bytes").ok()) return 1;
    ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(ended.code, 128 + SIGKILL);
  EXPECT_EQ(root.all(), std::vector<std::string>());
}

}  // namespace
}  // namespace varda::os
