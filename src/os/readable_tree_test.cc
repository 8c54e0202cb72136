// Allowed files can be read and all others cannot, whatever the path and whatever changes
// meanwhile.
#include "os/readable_tree.h"

#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "base/testing/eventually.h"

namespace varda::os {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Trees : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "readable_tree_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    scratch_ = fs::canonical(pattern);
    root_ = scratch_ / "root";
    fs::create_directories(root_ / "a");
    fs::create_directories(scratch_ / "rootless");
    write(root_ / "a/inside", "inside");
    write(scratch_ / "secret", "secret");
    write(scratch_ / "rootless/secret", "secret");
    tree_ = open_readable_tree({root_}).value();
  }
  void TearDown() override { fs::remove_all(scratch_); }

  static void write(const Path& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string text(ReadableFile& file) {
    std::string out(64, '\0');
    out.resize(file.read(0, out).value());
    return out;
  }
  // The text, or the error code.
  std::string read(const Path& path) {
    auto file = tree_->open(path);
    return file.ok() ? text(**file) : std::string(varda::to_string(file.error().code()));
  }

  Path scratch_, root_;
  std::unique_ptr<ReadableTree> tree_;
};

TEST_F(Trees, OnlyFilesBelowARootAreReadUnderAnyPath) {
  fs::create_symlink("inside", root_ / "a/link");
  fs::create_directory_symlink("a", root_ / "b");
  fs::create_symlink(scratch_ / "secret", root_ / "out");
  fs::create_directory_symlink(scratch_, root_ / "up");
  fs::create_symlink(root_ / "a/inside", scratch_ / "in");
  fs::create_symlink("loop", root_ / "loop");
  const std::string forbidden(to_string(Code::kForbidden)), missing(to_string(Code::kNotFound));
  const std::map<std::string, std::string> cases = {
      {"root/a/inside", "inside"},
      {"root/a/../a/./inside", "inside"},
      {"root/a/link", "inside"},
      {"root/b/inside", "inside"},
      {"in", "inside"},
      {"root/up/root/a/inside", "inside"},
      {"secret", forbidden},
      {"root/../secret", forbidden},
      {"root/out", forbidden},
      {"root/up/secret", forbidden},
      {"rootless/secret", forbidden},  // same prefix as the root
      {"root/a/nothing", missing},
  };
  for (const auto& [path, expected] : cases) EXPECT_EQ(read(scratch_ / path), expected) << path;
  EXPECT_FALSE(tree_->open(root_ / "a/inside/more").ok());
  EXPECT_FALSE(tree_->open(root_ / "loop").ok());
  EXPECT_THAT(tree_->open(root_ / "out").error().message(),
              HasSubstr((scratch_ / "secret").string()));
}

TEST_F(Trees, NonRegularFilesAreRefusedWithoutBlocking) {
  ASSERT_EQ(::mkfifo((root_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(tree_->open(root_ / "pipe").error().code(), Code::kInvalid);
  EXPECT_EQ(tree_->open(root_ / "a").error().code(), Code::kInvalid);
  EXPECT_EQ(tree_->open(root_).error().code(), Code::kInvalid);
  EXPECT_EQ(tree_->list(root_ / "a/inside").error().code(), Code::kInvalid);
  EXPECT_EQ(tree_->facts(root_ / "pipe").value().kind, FileKind::kOther);
  EXPECT_EQ(tree_->facts(root_ / "a/inside").value().size_bytes, 6u);
}

TEST_F(Trees, FolderListsLinksWithoutFollowing) {
  fs::create_symlink(scratch_ / "secret", root_ / "a/out");
  fs::create_directory_symlink(scratch_, root_ / "a/up");
  fs::create_directory(root_ / "a/down");
  auto folder = tree_->list(root_ / "a").value();
  std::map<std::string, FileKind> seen;
  while (auto entry = folder->next().value()) seen[entry->name] = entry->facts.kind;
  EXPECT_EQ(seen, (std::map<std::string, FileKind>{{"down", FileKind::kDirectory},
                                                   {"inside", FileKind::kFile},
                                                   {"out", FileKind::kSymlink},
                                                   {"up", FileKind::kSymlink}}));
  EXPECT_EQ(text(*folder->open("inside").value()), "inside");
  EXPECT_TRUE(folder->descend("down").ok());
  for (const char* name : {"out", "up", "..", ".", "", "down/../../../secret", "down/."}) {
    EXPECT_EQ(folder->open(name).error().code(), Code::kInvalid) << name;
    EXPECT_EQ(folder->descend(name).error().code(), Code::kInvalid) << name;
  }
  EXPECT_EQ(folder->open("nothing").error().code(), Code::kNotFound);
}

TEST_F(Trees, OpenFileStaysTheSameAfterARename) {
  auto file = tree_->open(root_ / "a/inside").value();
  const FileFacts before = file->facts().value();
  fs::rename(root_ / "a/inside", root_ / "a/elsewhere");
  fs::create_symlink(scratch_ / "secret", root_ / "a/inside");
  EXPECT_EQ(text(*file), "inside");
  EXPECT_EQ(file->facts().value().inode, before.inode);
  EXPECT_EQ(read(root_ / "a/inside"), to_string(Code::kForbidden));
}

// A thread constantly exchanges a folder and a link that leads outside. The link must never be
// followed.
TEST_F(Trees, FolderReplacedByALinkIsNeverFollowedOutside) {
  fs::create_directory(root_ / "d");
  write(root_ / "d/secret", "inside");
  fs::create_directory_symlink(scratch_ / "rootless", root_ / "e");
  const std::string d = root_ / "d", e = root_ / "e";
  std::atomic<bool> enough{false};
  std::jthread swapper([&] {
    while (!enough)
      (void)::syscall(SYS_renameat2, AT_FDCWD, d.c_str(), AT_FDCWD, e.c_str(),
                      2u /* RENAME_EXCHANGE */);
  });
  int inside = 0, outside = 0, refused = 0;
  EXPECT_TRUE(eventually("opens succeed and fail", [&] {
    for (int i = 0; i < 100; ++i) {
      auto file = tree_->open(root_ / "d/secret");
      ++(!file.ok() ? refused : text(**file) == "inside" ? inside : outside);
    }
    return inside + refused >= 2000 && inside > 0 && refused > 0;
  }));
  EXPECT_EQ(outside, 0);
  enough = true;
}

TEST_F(Trees, UnreadableFilesAreForbidden) {
  fs::permissions(root_ / "a/inside", fs::perms::none);
  if (std::ifstream(root_ / "a/inside").is_open())
    GTEST_SKIP() << "this process may read every file: use scripts/as_user.sh";
  EXPECT_EQ(read(root_ / "a/inside"), to_string(Code::kForbidden));
  fs::permissions(root_ / "a", fs::perms::none);
  EXPECT_EQ(tree_->list(root_ / "a").error().code(), Code::kForbidden);
  EXPECT_EQ(read(root_ / "a/inside"), to_string(Code::kForbidden));
  fs::permissions(root_ / "a", fs::perms::owner_all);
}

TEST_F(Trees, RootMustBeAnExistingDirectory) {
  EXPECT_EQ(open_readable_tree({root_ / "a/inside"}).error().code(), Code::kInvalid);
  EXPECT_EQ(open_readable_tree({root_ / "nothing"}).error().code(), Code::kInvalid);
  fs::create_directory_symlink(root_, scratch_ / "alias");
  tree_ = open_readable_tree({scratch_ / "rootless", scratch_ / "alias"}).value();
  EXPECT_EQ(read(root_ / "a/inside"), "inside");
  EXPECT_EQ(read(scratch_ / "alias/a/inside"), "inside");
  EXPECT_EQ(read(scratch_ / "rootless/secret"), "secret");
  tree_ = open_readable_tree({}).value();
  EXPECT_EQ(read(root_ / "a/inside"), to_string(Code::kForbidden));
}

}  // namespace
}  // namespace varda::os
