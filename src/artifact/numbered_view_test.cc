#include "artifact/numbered_view.h"

#include <gtest/gtest.h>

#include "os/testing/memory_file_system.h"

namespace varda::artifact {
namespace numbered_view_test {

constexpr const char* kKey = "default/digits";
const os::Path kView = "/data/models/default/digits/.numbered";

class NumberedViewTest : public ::testing::Test {
 protected:
  NumberedViewTest() : tree_(open()) {
    for (const char* name : {"3", "4", "four", "again"}) make(name, name);
    CHECK(fs.remove_all(artifact("four") / "config.pbtxt").ok());
  }
  ModelTree open() {
    auto tree = ModelTree::open(fs, "/data/models");
    CHECK(tree.ok());
    return std::move(*tree);
  }
  static os::Path artifact(const std::string& name) { return os::Path("/data/artifacts") / name; }
  void make(const std::string& name, const std::string& content) {
    CHECK(fs.make_directories(artifact(name) / "variables", 0755).ok());
    CHECK(os::write_file_atomically(fs, artifact(name) / "saved_model.pb", content).ok());
    CHECK(os::write_file_atomically(fs, artifact(name) / "variables/index", content).ok());
    CHECK(os::write_file_atomically(fs, artifact(name) / "config.pbtxt", content).ok());
  }
  void expose(const std::string& version, const std::string& from) {
    ASSERT_TRUE(tree_.expose(kKey, version, artifact(from)).ok());
    ASSERT_TRUE(tree_.set_target(kKey, version).ok());
  }
  Result<NumberedVersions> show(std::vector<std::string> extra_files = {}) {
    NumberedOptions options;
    options.versions = {{"3", {3, 1003}}, {"4", {4, 1004}}, {"four", {900, 1900}}};
    options.extra_files = std::move(extra_files);
    return show_numbered(fs, tree_, kKey, options);
  }
  std::string text(const os::Path& path) {
    auto bytes = os::read_file(fs, path);
    return bytes.ok() ? *bytes : "(" + bytes.error().message() + ")";
  }
  std::vector<std::string> list() {
    auto names = fs.list(kView);
    if (!names.ok()) return {};
    std::sort(names->begin(), names->end());
    return *names;
  }
  using Names = std::vector<std::string>;

  os::testing::MemoryFileSystem fs;
  ModelTree tree_;
};

TEST_F(NumberedViewTest, ActiveVersionIsHardLinkedUnderItsNumber) {
  expose("3", "3");
  const auto shown = show();
  ASSERT_TRUE(shown.ok()) << shown.error().message();
  EXPECT_EQ(shown->active, 3u);
  EXPECT_EQ(shown->names.at(3), "3");
  EXPECT_EQ(list(), Names{"3"});
  EXPECT_EQ(text(kView / "3/variables/index"), "3");
  EXPECT_EQ((*fs.stat(kView / "3/saved_model.pb"))->inode,
            (*fs.stat(artifact("3") / "saved_model.pb"))->inode);
}

TEST_F(NumberedViewTest, NewerVersionStaysNextToTheOlderUntilPruned) {
  expose("3", "3");
  ASSERT_TRUE(show().ok());
  expose("4", "4");
  EXPECT_EQ(show()->active, 4u);
  EXPECT_EQ(list(), (Names{"3", "4"}));
  ASSERT_TRUE(tree_.prune(kKey, {}).ok());
  ASSERT_TRUE(show().ok());
  EXPECT_EQ(list(), Names{"4"});
}

TEST_F(NumberedViewTest, RollbackHidesTheNewerNumber) {
  expose("3", "3");
  ASSERT_TRUE(show().ok());
  expose("4", "4");
  ASSERT_TRUE(show().ok());
  ASSERT_TRUE(tree_.set_target(kKey, "3").ok());
  EXPECT_EQ(show()->active, 3u);
  EXPECT_EQ(list(), Names{"3"});
}

TEST_F(NumberedViewTest, ActiveSmallerNumberHidesTheGreaterNumber) {
  expose("four", "four");
  ASSERT_TRUE(show().ok());
  EXPECT_EQ(list(), Names{"900"});
  expose("4", "4");
  EXPECT_EQ(show()->active, 4u);
  EXPECT_EQ(list(), Names{"4"});
}

TEST_F(NumberedViewTest, AnotherArtifactOfTheVersionGetsANewStableNumber) {
  expose("3", "3");
  ASSERT_TRUE(show().ok());
  expose("3", "again");
  const auto shown = show();
  EXPECT_EQ(shown->active, 1003u);
  EXPECT_EQ(shown->names.at(1003), "3");
  EXPECT_EQ(text(kView / "1003/saved_model.pb"), "again");
  EXPECT_EQ(list(), Names{"1003"});
  tree_ = open();  // a restart
  EXPECT_EQ(show()->active, 1003u);
  EXPECT_EQ(list(), Names{"1003"});
}

TEST_F(NumberedViewTest, SecondCallWritesNothing) {
  expose("3", "3");
  expose("4", "4");
  ASSERT_TRUE(show({"config.pbtxt"}).ok());
  const auto inode = (*fs.stat(kView / "4"))->inode;
  ASSERT_TRUE(show({"config.pbtxt"}).ok());
  EXPECT_EQ((*fs.stat(kView / "4"))->inode, inode);
}

TEST_F(NumberedViewTest, ExtraFilesComeFromTheActiveVersion) {
  expose("3", "3");
  ASSERT_TRUE(show({"config.pbtxt"}).ok());
  EXPECT_EQ(text(kView / "config.pbtxt"), "3");
  expose("4", "4");
  ASSERT_TRUE(show({"config.pbtxt"}).ok());
  EXPECT_EQ(text(kView / "config.pbtxt"), "4");
  expose("four", "four");  // has no numbers
  ASSERT_TRUE(show({"config.pbtxt"}).ok());
  EXPECT_EQ(list(), (Names{"3", "4", "900"}));
}

TEST_F(NumberedViewTest, LeftoversOfACrashAreCleared) {
  expose("3", "3");
  ASSERT_TRUE(fs.make_directories(kView / ".new-3/variables", 0755).ok());
  ASSERT_TRUE(fs.make_directories(kView / ".old-2", 0755).ok());
  ASSERT_TRUE(show().ok());
  EXPECT_EQ(list(), Names{"3"});
}

TEST_F(NumberedViewTest, ViewSurvivesARestartAndIsRemovedWithTheModel) {
  expose("3", "3");
  ASSERT_TRUE(show().ok());
  tree_ = open();
  EXPECT_EQ(list(), Names{"3"});
  EXPECT_EQ(*tree_.versions(kKey), Names{"3"});  // the view is not a version
  ASSERT_TRUE(tree_.remove(kKey).ok());
  EXPECT_EQ(*fs.stat(kView), std::nullopt);
}

TEST_F(NumberedViewTest, ShowFailsWithoutAnActiveVersion) {
  EXPECT_EQ(show().error().code(), Code::kNotFound);
  ASSERT_TRUE(tree_.expose(kKey, "3", artifact("3")).ok());
  EXPECT_EQ(show().error().code(), Code::kNotFound);
  EXPECT_TRUE(remove_numbered(fs, tree_, kKey).ok());
}

}  // namespace numbered_view_test
}  // namespace varda::artifact
