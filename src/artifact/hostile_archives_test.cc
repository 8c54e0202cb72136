// The corpus of hostile archives: each row is made at run time and installed through the whole
// pipeline.
#include <gtest/gtest.h>

#include "artifact/store.h"
#include "artifact/testing/archives.h"
#include "artifact/testing/origin.h"
#include "os/testing/memory_file_system.h"

namespace varda::artifact {
namespace hostile_archives_test {

using testing::Origin;
using testing::TarBuilder;

constexpr const char* kUrl = "http://files/model.tar.gz";

struct Tried {
  Outcome<Installed> outcome;
  std::vector<std::string> left;  // content of the store's root afterwards
  std::vector<std::string> outside;
};

Tried install(os::FileSystem& fs, const std::string& archive, const Limits& limits = {}) {
  Origin origin;
  origin.put(kUrl, Origin::File{.bytes = archive, .piece = 64 << 10});
  CHECK(fs.make_directories("/data").ok());
  auto store = Store::open({.root = "/data/artifacts", .limits = limits}, fs, origin);
  CHECK(store.ok());
  auto outcome = (*store)->ensure(
      Context::background(), {.url = kUrl, .digest = codec::Sha256::of(archive), .framework = ""});
  return {std::move(outcome), *fs.list("/data/artifacts"), *fs.list("/data")};
}

struct Hostile {
  const char* name;
  std::string archive;
  const char* message;
  Limits limits = {};
};

std::vector<Hostile> corpus() {
  Limits small;
  small.extracted_bytes_max = 1 << 20;
  small.entries_max = 10;
  small.ratio_free_bytes = 256 << 10;
  small.ratio_max = 50;
  small.depth_max = 4;
  TarBuilder many;
  for (int i = 0; i < 11; ++i) many.file("f" + std::to_string(i));
  TarBuilder deep_names;
  deep_names.file("a/b/c/d/e");
  TarBuilder implied;
  for (int i = 0; i < 6; ++i) implied.file("d" + std::to_string(i) + "/f");
  const auto ok = [] { return TarBuilder().file("model.onnx"); };
  return {
      {"ParentPath", ok().file("../evil").tar(), "\"..\""},
      {"ParentPathInside", ok().file("a/../../evil").tar(), "\"..\""},
      {"ParentPathThatStaysInside", ok().file("a/../b").tar(), "\"..\""},
      {"ParentDirectory", ok().directory("..").tar(), "\"..\""},
      {"AbsoluteFile", ok().file("/data/evil").tar(), "absolute"},
      {"AbsoluteDirectory", ok().directory("/data/evil").tar(), "absolute"},
      {"DoubleSlash", ok().file("//data/evil").tar(), "absolute"},
      {"LinkAbsolute", ok().symlink("l", "/data").tar(), "absolute"},
      {"LinkOut", ok().symlink("l", "../..").tar(), "out of the tree"},
      {"LinkOutFromBelow", ok().symlink("a/b/l", "../../../x").tar(), "out of the tree"},
      {"LinkBehindName", ok().symlink("l", "a/../../x").tar(), "after a name"},
      // c leads to the root, so "a/b/c/.." would be above it, although as text it is a/b.
      {"LinkThroughLink", ok().symlink("a/b/c", "../..").symlink("e", "a/b/c/../x").tar(),
       "after a name"},
      {"LinkEmpty", ok().symlink("l", "").tar(), ""},
      {"WriteThroughLink", ok().symlink("l", "sub").file("l/evil").tar(), "not a directory"},
      {"DirectoryOverLink", ok().symlink("l", "sub").directory("l").tar(), "twice"},
      {"LinkOverDirectory", ok().directory("d").symlink("d", "sub").tar(), "twice"},
      {"LinkOutOfStrippedTop",
       TarBuilder().file("top/model.onnx").symlink("top/l", "../top/model.onnx").tar(),
       "out of the tree"},
      {"HardLinkOut", ok().hard_link("h", "../../etc/passwd").tar(), "\"..\""},
      {"HardLinkAbsolute", ok().hard_link("h", "/etc/passwd").tar(), "absolute"},
      {"HardLinkToNothing", ok().hard_link("h", "none").tar(), "not an earlier file"},
      {"HardLinkToLink", ok().symlink("l", "model.onnx").hard_link("h", "l").tar(),
       "not an earlier file"},
      {"HardLinkToItself", ok().hard_link("h", "h").tar(), "not an earlier file"},
      {"Device", ok().device("null").tar(), "device"},
      {"Fifo", ok().fifo("pipe").tar(), "device"},
      {"SameFileTwice", ok().file("a", "1").file("a", "2").tar(), "twice"},
      {"SameFileTwiceOtherSpelling", ok().file("a", "1").file("./a", "2").tar(), "twice"},
      {"FileOverDirectory", ok().directory("a").file("a").tar(), "twice"},
      {"FileOverImpliedDirectory", ok().file("a/b").file("a").tar(), "twice"},
      {"FileUnderFile", ok().file("a").file("a/b").tar(), "not a directory"},
      {"DirectoryUnderFile", ok().file("a").directory("a/b").tar(), "not a directory"},
      {"ControlCharacter", ok().file("a\x1b[2Jb").tar(), "control character"},
      {"Newline", ok().file("a\nb").tar(), "control character"},
      {"TooManyEntries", many.tar(), "more than 10 entries", small},
      {"TooManyImpliedDirectories", implied.tar(), "more than 10 entries", small},
      {"TooDeep", deep_names.tar(), "deeper than 4", small},
      {"TooLarge", TarBuilder().file("a", std::string(2 << 20, 'r')).tar(),
       "more than 1048576 bytes", small},
      {"TooLargeInPieces",
       TarBuilder()
           .file("a", std::string(700 << 10, 'r'))
           .file("b", std::string(700 << 10, 'r'))
           .tar(),
       "more than 1048576 bytes", small},
      {"HardLinksMultiply",
       TarBuilder()
           .file("a", std::string(300 << 10, 'r'))
           .hard_link("b", "a")
           .hard_link("c", "a")
           .hard_link("d", "a")
           .tar(),
       "more than 1048576 bytes", small},
      {"Bomb", testing::tar_gzip_of("zeros", 900 << 10), "50 times its size", small},
      {"Empty", TarBuilder().tar(), ""},
      {"OnlyDirectories", TarBuilder().directory("a").directory("a/b").tar(), "no file"},
      {"Text", "this is no archive, it is a sentence that goes on for a while", "not an archive"},
      {"SevenZip", std::string("7z\xBC\xAF\x27\x1C\0\4", 8), "7z"},
      {"Truncated", TarBuilder().file("a", std::string(9000, 'x')).tar().substr(0, 3000), ""},
  };
}

TEST(HostileArchives, HostileArchivesAreRefusedAndLeaveNoFiles) {
  for (const Hostile& hostile : corpus()) {
    SCOPED_TRACE(hostile.name);
    os::testing::MemoryFileSystem fs;
    const Tried tried = install(fs, hostile.archive, hostile.limits);
    ASSERT_FALSE(tried.outcome.ok());
    EXPECT_EQ(to_string(tried.outcome.error().reason), "UnsafeArchive")
        << tried.outcome.error().error;
    EXPECT_NE(tried.outcome.error().error.message().find(hostile.message), std::string::npos)
        << tried.outcome.error().error;
    for (const std::string& name : tried.left)
      EXPECT_TRUE(name.starts_with('.')) << name << ": only directories of the store's own";
    EXPECT_EQ(tried.outside, std::vector<std::string>{"artifacts"});
    EXPECT_TRUE(fs.list("/data/artifacts/.scratch")->empty());
    EXPECT_EQ(*fs.list("/"), std::vector<std::string>{"data"});
  }
}

TEST(HonestArchives, HonestArchivesUnpackToTheExpectedTree) {
  struct Honest {
    const char* name;
    std::string archive;
    std::vector<std::string> root;
  };
  const Honest cases[] = {
      {"Plain",
       TarBuilder().file("model.onnx").file("labels.txt").tar(),
       {"labels.txt", "model.onnx"}},
      {"TopDirectoryIsStripped",
       TarBuilder().directory("m/").file("m/model.onnx").file("m/sub/x").tar(),
       {"model.onnx", "sub"}},
      {"ImpliedTopDirectoryIsStripped", TarBuilder().file("m/model.onnx").tar(), {"model.onnx"}},
      {"DotPrefixIsNoDirectory",
       TarBuilder().directory("./").file("./model.onnx").tar(),
       {"model.onnx"}},
      {"TwoTopsStay", TarBuilder().file("m/model.onnx").file("n/x").tar(), {"m", "n"}},
      {"TopFileBesideDirectoryStays",
       TarBuilder().file("m/x").file("model.onnx").tar(),
       {"m", "model.onnx"}},
      {"OnlyOneTopIsStripped", TarBuilder().file("m/n/model.onnx").tar(), {"n"}},
      {"SameDirectoryTwice",
       TarBuilder().directory("m").file("a").directory("m/").tar(),
       {"a", "m"}},
      {"CaseMatters", TarBuilder().file("a").file("A").tar(), {"A", "a"}},
      {"LinkInside",
       TarBuilder()
           .file("a/b")
           .symlink("a/l", "b")
           .symlink("m", "a/b")
           .symlink("a/up", "../a/b")
           .tar(),
       {"a", "m"}},
      {"HardLink", TarBuilder().file("a", "abc").hard_link("b", "a").tar(), {"a", "b"}},
      {"DotsInNames",
       TarBuilder().file("..a").file("b..").file("...").tar(),
       {"...", "..a", "b.."}},
  };
  for (const Honest& honest : cases) {
    SCOPED_TRACE(honest.name);
    os::testing::MemoryFileSystem fs;
    const Tried tried = install(fs, honest.archive);
    ASSERT_TRUE(tried.outcome.ok()) << tried.outcome.error().error;
    EXPECT_EQ(*fs.list(tried.outcome->directory), honest.root);
    EXPECT_TRUE(fs.list("/data/artifacts/.scratch")->empty());
  }
}

TEST(HonestArchives, ModesAreNormalisedAndHardLinksBecomeCopies) {
  os::testing::MemoryFileSystem fs;
  const Tried tried = install(
      fs, TarBuilder().file("a", "abc", 06777).hard_link("b", "a").file("c", "", 0600).tar());
  ASSERT_TRUE(tried.outcome.ok()) << tried.outcome.error().error;
  const os::Path root = tried.outcome->directory;
  EXPECT_EQ((*fs.stat(root / "a"))->mode, 0755u);
  EXPECT_EQ((*fs.stat(root / "c"))->mode, 0644u);
  EXPECT_EQ(*os::read_file(fs, root / "b"), "abc");
  EXPECT_EQ((*fs.stat(root / "b"))->links, 1u);
  EXPECT_EQ(tried.outcome->bytes, 6u);
}

TEST(HonestArchives, CompressibleModelBelowTheFreeSizeIsAccepted) {
  os::testing::MemoryFileSystem fs;
  const Tried tried = install(fs, testing::tar_gzip_of("weights", 8 << 20));
  EXPECT_TRUE(tried.outcome.ok());
}

}  // namespace hostile_archives_test
}  // namespace varda::artifact
