#include "serving/layout.h"

#include <cstdlib>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "os/testing/memory_file_system.h"
#include "serving/config.h"

namespace varda::serving {
namespace {

class Layout : public ::testing::Test {
 protected:
  void file(const std::string& path, const std::string& text = "") {
    const os::Path full = os::Path("/models") / path;
    ASSERT_TRUE(fs_.make_directories(full.parent_path(), 0755).ok());
    ASSERT_TRUE(os::write_file_atomically(fs_, full, text).ok());
  }
  Wanted wanted(const std::string& model) { return scan(fs_, "/models").value().at(model); }

  os::testing::MemoryFileSystem fs_;
};

TEST(Versions, NumbersCompareNumericallyAndAboveNames) {
  for (const auto& [low, high] : std::vector<std::pair<const char*, const char*>>{
           {"2", "10"},
           {"9", "20240229"},
           {"alpha", "beta"},
           {"zeta", "1"},
           {"v9", "2"},
           {"007", "8"},
           {"7", "70"},
           {"99999999999999999999", "100000000000000000000"}}) {
    EXPECT_TRUE(older(low, high)) << low << " " << high;
    EXPECT_FALSE(older(high, low)) << low << " " << high;
  }
  EXPECT_FALSE(older("3", "3"));
  EXPECT_NE(older("3", "03"), older("03", "3"));
}

TEST_F(Layout, TargetSelectsAnOlderVersion) {
  file("digits/3/model.onnx");
  file("digits/4/model.onnx");
  EXPECT_EQ(wanted("digits").version, "4");
  file("digits/target", "3\n");
  EXPECT_EQ(wanted("digits").version, "3");
  EXPECT_EQ(wanted("digits").problem, "");
}

TEST_F(Layout, MissingTargetVersionIsReported) {
  file("digits/3/model.onnx");
  file("digits/target", "5");
  EXPECT_EQ(wanted("digits"),
            (Wanted{.version = "5", .problem = "target names version 5, which does not exist"}));
  file("digits/target", "../../etc");
  EXPECT_EQ(wanted("digits").version, "");
  EXPECT_NE(wanted("digits").problem, "");
}

TEST_F(Layout, JointFileIsReadForAnyVersion) {
  file("digits/3/model.onnx");
  EXPECT_EQ(wanted("digits").joint, std::nullopt);
  file("digits/joint.json", "{}");
  EXPECT_EQ(wanted("digits").joint, "{}");
  EXPECT_EQ(wanted("digits").version, "3");
  file("digits/target", "no version\n");
  EXPECT_EQ(wanted("digits").joint, "{}");
  file("digits/joint.json", std::string((1 << 20) + 1, ' '));
  EXPECT_EQ(wanted("digits").joint, "") << "too large to be one";
}

// Opening a pipe blocks until a writer comes.
TEST(LayoutOnDisk, PipesAreReportedWithoutBlocking) {
  const std::string name = ::testing::TempDir() + "/layout-XXXXXX";
  std::vector<char> directory(name.begin(), name.end());
  directory.push_back('\0');
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const std::filesystem::path root = directory.data();
  for (const char* model : {"digits", "letters"})
    std::filesystem::create_directories(root / model / "3");
  for (const char* file : {"joint.json", "target", ".last-good"}) {
    ASSERT_EQ(::mkfifo((root / "digits" / file).c_str(), 0600), 0);
    std::filesystem::create_symlink(root / "digits" / file, root / "letters" / file);
  }
  for (const char* file : {"model.yaml", "model.onnx"}) {
    ASSERT_EQ(::mkfifo((root / "letters/3" / file).c_str(), 0600), 0);
    const auto config = read_config(os::real_file_system(), root / "letters/3", {});
    ASSERT_FALSE(config.ok());
    EXPECT_EQ(config.error().message(), std::string(file) + " is not a file");
    std::filesystem::remove(root / "letters/3" / file);
  }
  const auto found = scan(os::real_file_system(), root);
  ASSERT_TRUE(found.ok()) << found.error();
  for (const char* model : {"digits", "letters"}) {
    EXPECT_EQ(found->at(model).joint, "") << "there, and unreadable";
    EXPECT_NE(found->at(model).problem, "");
    EXPECT_EQ(found->at(model).last_good, "");
  }
  EXPECT_THAT(found->at("digits").problem, ::testing::HasSubstr("target is not a file"));
  std::filesystem::remove_all(root);
}

TEST_F(Layout, HiddenAndStrayFilesAreNotVersions) {
  file("digits/3/model.onnx");
  file("digits/.5/model.onnx");
  file("digits/9");  // a file
  file(".incoming/1/model.onnx");
  file("README");
  EXPECT_EQ(wanted("digits").version, "3");
  EXPECT_EQ(scan(fs_, "/models").value().size(), 1u);
}

TEST_F(Layout, ModelWithoutVersionsHasAProblem) {
  ASSERT_TRUE(fs_.make_directories("/models/empty", 0755).ok());
  EXPECT_EQ(wanted("empty"), (Wanted{.problem = "there is no version"}));
}

TEST_F(Layout, ChangedFilesOfAVersionChangeItsFingerprint) {
  file("digits/3/model.onnx", "a");
  const std::string before = wanted("digits").fingerprint;
  EXPECT_EQ(wanted("digits").fingerprint, before);
  file("digits/3/model.onnx", "b");
  const std::string replaced = wanted("digits").fingerprint;
  EXPECT_NE(replaced, before);
  file("digits/3/labels.txt", "x");
  EXPECT_NE(wanted("digits").fingerprint, replaced);
}

TEST_F(Layout, UnreadableRepositoryIsAnError) { EXPECT_FALSE(scan(fs_, "/nowhere").ok()); }

}  // namespace
}  // namespace varda::serving
