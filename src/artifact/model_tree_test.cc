#include "artifact/model_tree.h"

#include <gtest/gtest.h>

#include "os/testing/memory_file_system.h"

namespace varda::artifact {
namespace {

class ModelTreeTest : public ::testing::Test {
 protected:
  ModelTreeTest() {
    for (const char* version : {"3", "4", "5"}) {
      const os::Path artifact = os::Path("/data/artifacts") / version;
      CHECK(fs.make_directories(artifact / "sub", 0755).ok());
      CHECK(os::write_file_atomically(fs, artifact / "model.onnx", version).ok());
      CHECK(os::write_file_atomically(fs, artifact / "sub/labels.txt", version).ok());
      CHECK(fs.symlink("sub/labels.txt", artifact / "labels").ok());
    }
  }
  ModelTree open() {
    auto tree = ModelTree::open(fs, "/data/models");
    CHECK(tree.ok());
    return std::move(*tree);
  }
  static os::Path artifact(const std::string& version) {
    return os::Path("/data/artifacts") / version;
  }
  std::string text(const os::Path& path) {
    auto bytes = os::read_file(fs, path);
    return bytes.ok() ? *bytes : "(" + bytes.error().message() + ")";
  }

  os::testing::MemoryFileSystem fs;
};

TEST_F(ModelTreeTest, ExposedVersionSharesTheFilesOfTheArtifact) {
  auto tree = open();
  ASSERT_TRUE(tree.expose("default/digits", "3", artifact("3")).ok());
  EXPECT_EQ(text("/data/models/default/digits/3/sub/labels.txt"), "3");
  EXPECT_EQ(*fs.read_link("/data/models/default/digits/3/labels"), "sub/labels.txt");
  EXPECT_EQ((*fs.stat("/data/models/default/digits/3/model.onnx"))->inode,
            (*fs.stat(artifact("3") / "model.onnx"))->inode);
  EXPECT_EQ(*tree.versions("default/digits"), std::vector<std::string>{"3"});
  EXPECT_EQ(*tree.keys(), std::vector<std::string>{"default/digits"});
}

TEST_F(ModelTreeTest, TargetMustBeAnExposedVersion) {
  auto tree = open();
  EXPECT_EQ(tree.set_target("default/digits", "3").error().code(), Code::kNotFound);
  EXPECT_EQ(*tree.target("default/digits"), std::nullopt);
  ASSERT_TRUE(tree.expose("default/digits", "3", artifact("3")).ok());
  ASSERT_TRUE(tree.set_target("default/digits", "3").ok());
  EXPECT_EQ(text("/data/models/default/digits/target"), "3\n");
  EXPECT_EQ(*tree.target("default/digits"), "3");
}

TEST_F(ModelTreeTest, NewArtifactReplacesTheFilesOfTheVersion) {
  auto tree = open();
  ASSERT_TRUE(tree.expose("default/digits", "3", artifact("3")).ok());
  const auto calls = fs.calls();
  ASSERT_TRUE(tree.expose("default/digits", "3", artifact("3")).ok());
  EXPECT_LT(fs.calls() - calls, 20u);
  ASSERT_TRUE(tree.expose("default/digits", "3", artifact("4")).ok());
  EXPECT_EQ(text("/data/models/default/digits/3/model.onnx"), "4");
  EXPECT_EQ(*fs.list("/data/models/default/digits"), std::vector<std::string>{"3"});
}

TEST_F(ModelTreeTest, PruneHidesVersionsNeitherKeptNorActive) {
  auto tree = open();
  for (const char* version : {"3", "4", "5"})
    ASSERT_TRUE(tree.expose("default/digits", version, artifact(version)).ok());
  ASSERT_TRUE(tree.set_target("default/digits", "5").ok());
  ASSERT_TRUE(tree.prune("default/digits", {"4"}).ok());
  EXPECT_EQ(*tree.versions("default/digits"), (std::vector<std::string>{"4", "5"}));
  EXPECT_EQ((*fs.stat(artifact("3") / "model.onnx"))->links, 1u);
}

TEST_F(ModelTreeTest, UnexposingTheActiveVersionClearsTheTarget) {
  auto tree = open();
  ASSERT_TRUE(tree.expose("default/digits", "3", artifact("3")).ok());
  ASSERT_TRUE(tree.set_target("default/digits", "3").ok());
  ASSERT_TRUE(tree.unexpose("default/digits", "3").ok());
  EXPECT_EQ(*tree.target("default/digits"), std::nullopt);
  EXPECT_TRUE(tree.unexpose("default/digits", "3").ok());
}

TEST_F(ModelTreeTest, RemovingAModelLeavesOthersAndArtifacts) {
  auto tree = open();
  ASSERT_TRUE(tree.expose("default/a", "3", artifact("3")).ok());
  ASSERT_TRUE(tree.expose("default/b", "3", artifact("3")).ok());
  ASSERT_TRUE(tree.remove("default/a").ok());
  EXPECT_EQ(*tree.keys(), std::vector<std::string>{"default/b"});
  ASSERT_TRUE(tree.remove("default/b").ok());
  ASSERT_TRUE(tree.remove("default/b").ok());
  EXPECT_TRUE(fs.list("/data/models")->empty());
  EXPECT_EQ(text(artifact("3") / "model.onnx"), "3");
}

TEST_F(ModelTreeTest, InvalidKeysAndVersionsAreRefused) {
  auto tree = open();
  for (const char* key : {"", "digits", "default/", "/digits", "default/../x", "../digits",
                          "default/a/b", "default/.hidden", "a b/c"})
    EXPECT_EQ(tree.expose(key, "3", artifact("3")).error().code(), Code::kInvalid) << key;
  for (const char* version : {"", ".", "..", "target", "joint.json", "a/b", ".new-3", "a b"})
    EXPECT_EQ(tree.expose("default/digits", version, artifact("3")).error().code(), Code::kInvalid)
        << version;
}

TEST_F(ModelTreeTest, LastGoodSurvivesRestartsAndIsRewrittenOnlyOnChange) {
  auto tree = open();
  ASSERT_TRUE(tree.expose("default/digits", "3", artifact("3")).ok());
  ASSERT_TRUE(tree.note_last_good("default/digits", "3 abc").ok());
  auto after = open();
  EXPECT_EQ(text("/data/models/default/digits/.last-good"), "3 abc\n");
  const auto inode = (*fs.stat("/data/models/default/digits/.last-good"))->inode;
  ASSERT_TRUE(after.note_last_good("default/digits", "3 abc").ok());
  EXPECT_EQ((*fs.stat("/data/models/default/digits/.last-good"))->inode, inode);
  ASSERT_TRUE(after.note_last_good("default/digits", "4 def").ok());
  EXPECT_EQ(text("/data/models/default/digits/.last-good"), "4 def\n");
  EXPECT_EQ(*after.versions("default/digits"), std::vector<std::string>{"3"});
}

TEST_F(ModelTreeTest, WorkerNameIsAKeyOfItsOwn) {
  auto tree = open();
  ASSERT_TRUE(tree.expose("default/digits", "3", artifact("3")).ok());
  ASSERT_TRUE(tree.expose("default/digits.edge", "4", artifact("4")).ok());
  ASSERT_TRUE(tree.set_target("default/digits.edge", "4").ok());
  auto after = open();
  EXPECT_EQ(*after.keys(), (std::vector<std::string>{"default/digits", "default/digits.edge"}));
  EXPECT_EQ(*after.target("default/digits.edge"), "4");
  EXPECT_EQ(*after.target("default/digits"), std::nullopt);
  ASSERT_TRUE(after.remove("default/digits.edge").ok());
  EXPECT_EQ(*after.keys(), std::vector<std::string>{"default/digits"});
}

TEST_F(ModelTreeTest, JointFileNeedsNoVersionAndIsRewrittenOnlyOnChange) {
  const codec::Json one = codec::Json::object({{"version", 1}, {"tiers", codec::Json::array()}});
  const codec::Json turned = codec::Json::object({{"tiers", codec::Json::array()}, {"version", 1}});
  const os::Path file = "/data/models/default/digits.edge/joint.json";
  auto tree = open();
  ASSERT_TRUE(tree.set_joint_file("default/digits.edge", codec::Json()).ok());
  EXPECT_TRUE(tree.keys()->empty()) << "nothing to take away makes no directory";
  ASSERT_TRUE(tree.set_joint_file("default/digits.edge", one).ok());
  EXPECT_EQ(text(file), "{\"version\":1,\"tiers\":[]}\n");
  const auto inode = (*fs.stat(file))->inode;
  auto after = open();
  ASSERT_TRUE(after.set_joint_file("default/digits.edge", turned).ok());
  EXPECT_EQ((*fs.stat(file))->inode, inode);
  ASSERT_TRUE(after.expose("default/digits.edge", "3", artifact("3")).ok());
  EXPECT_EQ(*after.versions("default/digits.edge"), std::vector<std::string>{"3"});
  ASSERT_TRUE(after.prune("default/digits.edge", {}).ok());
  EXPECT_EQ((*fs.stat(file))->inode, inode);
  ASSERT_TRUE(
      after.set_joint_file("default/digits.edge", codec::Json::object({{"version", 2}})).ok());
  EXPECT_EQ(text(file), "{\"version\":2}\n");
  EXPECT_EQ((*fs.stat(file))->mode, 0644U);
  ASSERT_TRUE(after.set_joint_file("default/digits.edge", codec::Json()).ok());
  ASSERT_TRUE(after.set_joint_file("default/digits.edge", codec::Json()).ok());
  EXPECT_FALSE(*fs.stat(file));
  EXPECT_EQ(after.set_joint_file("default", one).error().code(), Code::kInvalid);
}

TEST_F(ModelTreeTest, DamagedJointFileIsRewritten) {
  auto tree = open();
  const codec::Json one = codec::Json::object({{"version", 1}});
  for (const std::string& damage :
       {std::string("{"), std::string("{\"version\":9}"), std::string(2 << 20, 'x')}) {
    ASSERT_TRUE(tree.set_joint_file("default/digits", one).ok());
    ASSERT_TRUE(
        os::write_file_atomically(fs, "/data/models/default/digits/joint.json", damage).ok());
    ASSERT_TRUE(tree.set_joint_file("default/digits", one).ok());
    EXPECT_EQ(text("/data/models/default/digits/joint.json"), "{\"version\":1}\n");
  }
}

// A server that reads at any moment, also after a kill, sees the whole old or new joint.json.
TEST_F(ModelTreeTest, FaultAtAnyCallLeavesTheOldOrNewJointFile) {
  const codec::Json one = codec::Json::object({{"version", 1}}),
                    two = codec::Json::object({{"version", 2}});
  const std::string file = "/data/models/default/digits/joint.json";
  auto tree = open();
  int faults = 0;
  for (int nth = 1;; ++nth) {
    ASSERT_TRUE(tree.set_joint_file("default/digits", one).ok());
    fs.fail_nth(nth, "", Error(Code::kExhausted, "no space left on device"));
    const Status done = tree.set_joint_file("default/digits", two);
    fs.on_call({});
    const std::string now = text(file);
    EXPECT_TRUE(now == "{\"version\":1}\n" || now == "{\"version\":2}\n") << nth << ": " << now;
    if (done.ok()) {
      EXPECT_EQ(now, "{\"version\":2}\n");
      break;
    }
    ++faults;
    EXPECT_EQ(done.error().code(), Code::kExhausted);
    auto after = open();
    EXPECT_EQ(fs.list("/data/models/default/digits")->size(), 1u)
        << "what was under way is cleared";
  }
  EXPECT_GE(faults, 7);
}

// A server that reads at any moment, also after a kill, sees whole versions and an existing target.
TEST_F(ModelTreeTest, KillAtAnyCallLeavesWholeVersionsAndAnExistingTarget) {
  const auto swap = [](ModelTree& tree) -> Status {
    TRY_VOID(tree.expose("default/digits", "4", artifact("4")));
    TRY_VOID(tree.set_target("default/digits", "4"));
    return tree.prune("default/digits", {});
  };
  for (std::uint64_t nth = 1;; ++nth) {
    ASSERT_TRUE(fs.remove_all("/data/models").ok());
    auto tree = open();
    ASSERT_TRUE(tree.expose("default/digits", "3", artifact("3")).ok());
    ASSERT_TRUE(tree.set_target("default/digits", "3").ok());
    std::uint64_t seen = 0;
    fs.on_call([&seen, nth](std::string_view, const os::Path&) -> Status {
      return ++seen >= nth ? Status(Error(Code::kInternal, "killed")) : Status();
    });
    const bool done = swap(tree).ok();
    fs.on_call({});
    auto after = open();
    const auto target = *after.target("default/digits");
    ASSERT_TRUE(target);
    const auto shown = *after.versions("default/digits");
    for (const std::string& version : shown) {
      EXPECT_EQ(text(os::Path("/data/models/default/digits") / version / "model.onnx"), version);
      EXPECT_EQ(text(os::Path("/data/models/default/digits") / version / "sub/labels.txt"),
                version);
    }
    EXPECT_EQ(text(os::Path("/data/models/default/digits") / *target / "model.onnx"), *target);
    ASSERT_TRUE(swap(after).ok());
    EXPECT_EQ(*after.versions("default/digits"), std::vector<std::string>{"4"});
    if (done) break;
  }
}

}  // namespace
}  // namespace varda::artifact
