// The fake must lose unsynced data, or a campaign proves nothing. It must also keep synced data, or
// a campaign demands the impossible.
#include "os/testing/crashing_file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

namespace varda::os::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsSubsetOf;
using ::testing::UnorderedElementsAre;

constexpr std::uint64_t kSeeds = 400;

class Crash : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(fs.make_directories("/d", 0755).ok() && fs.sync_directory("/").ok());
  }

  std::unique_ptr<File> open(const Path& path) {
    return fs.open(path, Open::kCreate, 0644).value();
  }
  void durable(const Path& path, std::string_view bytes) {
    auto file = open(path);
    ASSERT_TRUE(file->write(bytes).ok() && file->sync().ok() &&
                fs.sync_directory(path.parent_path()).ok());
  }
  /// All results of `see` over the seeds.
  template <typename See>
  auto outcomes(See see) const {
    std::set<decltype(see(*fs.killed()))> seen;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const auto left = fs.crashed(seed);
      seen.insert(see(*left));
    }
    return seen;
  }
  auto contents(const Path& path) const {
    return outcomes([&](FileSystem& left) { return read_file(left, path).value_or("<missing>"); });
  }
  auto names(const Path& directory) const {
    return outcomes([&](FileSystem& left) { return left.list(directory).value(); });
  }

  CrashingFileSystem fs;
};

using Names = std::vector<std::string>;

TEST_F(Crash, SyncedFileWithASyncedNameSurvives) {
  durable("/d/a", "kept");
  EXPECT_THAT(contents("/d/a"), ElementsAre("kept"));
}

TEST_F(Crash, SyncOfAFileDoesNotPersistItsName) {
  auto file = open("/d/a");
  ASSERT_TRUE(file->write("x").ok() && file->sync().ok());
  EXPECT_THAT(names("/d"), UnorderedElementsAre(Names{}, Names{"a"}));
}

TEST_F(Crash, SyncedNameWithoutFileSyncMayHoldNothingOrZeros) {
  auto file = open("/d/a");
  ASSERT_TRUE(file->write("data").ok() && fs.sync_directory("/d").ok());
  EXPECT_THAT(contents("/d/a"), UnorderedElementsAre("", "data", std::string(4, '\0')));
}

TEST_F(Crash, OverwrittenSectorsSurviveInAnySubset) {
  durable("/d/a", std::string(1024, 'o'));
  auto file = open("/d/a");
  ASSERT_TRUE(file->write(std::string(1024, 'n')).ok());
  const std::string o(512, 'o'), n(512, 'n');
  EXPECT_THAT(contents("/d/a"), UnorderedElementsAre(o + o, o + n, n + o, n + n));
}

TEST_F(Crash, BytesOutsideAWriteAreNeverDamaged) {
  durable("/d/a", std::string(512, 'o'));
  auto file = open("/d/a");
  ASSERT_TRUE(file->seek(100).ok() && file->write("new").ok());
  std::string now(512, 'o');
  now.replace(100, 3, "new");
  EXPECT_THAT(contents("/d/a"), UnorderedElementsAre(std::string(512, 'o'), now));
}

TEST_F(Crash, StatesBetweenTwoSyncsMaySurvive) {
  auto file = open("/d/a");
  ASSERT_TRUE(fs.sync_directory("/d").ok());
  for (const char* text : {"1", "2", "3"})
    ASSERT_TRUE(file->seek(0).ok() && file->write(text).ok());
  EXPECT_THAT(contents("/d/a"), ::testing::IsSupersetOf({"1", "2", "3", ""}));
}

TEST_F(Crash, UnsyncedTruncationMayBeUndone) {
  durable("/d/a", std::string(600, 'o'));
  auto file = open("/d/a");
  ASSERT_TRUE(file->truncate(10).ok());
  for (const std::string& found : contents("/d/a")) {
    EXPECT_TRUE(found.size() == 600 || found.size() == 10) << found.size();
    EXPECT_EQ(found.substr(0, 10), std::string(10, 'o'));
  }
  EXPECT_THAT(contents("/d/a"), Contains(std::string(600, 'o')));
  EXPECT_THAT(contents("/d/a"), Contains(std::string(10, 'o')));
}

TEST_F(Crash, RenameAppearsInBothDirectoriesOrInNeither) {
  ASSERT_TRUE(fs.make_directories("/e", 0755).ok() && fs.sync_directory("/").ok());
  durable("/d/a", "new");
  durable("/e/b", "old");
  ASSERT_TRUE(fs.rename("/d/a", "/e/b").ok());
  const auto both = outcomes([](FileSystem& left) {
    return read_file(left, "/d/a").value_or("-") + " " + read_file(left, "/e/b").value_or("-");
  });
  EXPECT_THAT(both, UnorderedElementsAre("new old", "- new"));
  ASSERT_TRUE(fs.sync_directory("/e").ok());
  EXPECT_THAT(names("/d"), ElementsAre(Names{}));
  EXPECT_THAT(contents("/e/b"), ElementsAre("new"));
}

TEST_F(Crash, EntriesOfOneDirectorySurviveInAnySubset) {
  (void)open("/d/a");
  (void)open("/d/b");
  EXPECT_THAT(names("/d"), UnorderedElementsAre(Names{}, Names{"a"}, Names{"b"}, Names{"a", "b"}));
}

TEST_F(Crash, UnsyncedRemovalMayBeUndone) {
  durable("/d/a", "x");
  ASSERT_TRUE(fs.remove("/d/a").ok());
  EXPECT_THAT(contents("/d/a"), UnorderedElementsAre("x", "<missing>"));
}

TEST_F(Crash, UnsyncedModeMayBeUndone) {
  durable("/d/a", "x");
  ASSERT_TRUE(fs.set_mode("/d/a", 0600).ok());
  const auto modes = outcomes([](FileSystem& left) { return left.stat("/d/a").value()->mode; });
  EXPECT_THAT(modes, UnorderedElementsAre(0644u, 0600u));
}

TEST_F(Crash, KillKeepsAllDataButMakesNothingDurable) {
  (void)open("/d/a");
  const auto next = fs.killed();
  EXPECT_THAT(next->list("/d").value(), ElementsAre("a"));
  std::set<Names> seen;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed)
    seen.insert(next->crashed(seed)->list("/d").value());
  EXPECT_THAT(seen, UnorderedElementsAre(Names{}, Names{"a"}));
}

TEST_F(Crash, SyncAfterAFailedSyncMayNotPersistTheData) {
  auto file = open("/d/a");
  ASSERT_TRUE(fs.sync_directory("/d").ok());
  std::set<std::string> seen;
  for (int round = 0; round < 40; ++round) {
    ASSERT_TRUE(file->truncate(0).ok() && file->sync().ok() && file->seek(0).ok());
    ASSERT_TRUE(file->write("x").ok());
    fs.set_fault(CrashingFileSystem::Fault{.call = fs.calls()});
    ASSERT_FALSE(file->sync().ok());
    fs.set_fault(std::nullopt);
    ASSERT_TRUE(file->sync().ok());
    EXPECT_EQ(read_file(fs, "/d/a").value(), "x");  // memory shows data that the disk lacks
    seen.insert(read_file(*fs.crashed(1), "/d/a").value());
  }
  EXPECT_THAT(seen, UnorderedElementsAre("x", std::string(1, '\0')));
}

TEST_F(Crash, ShortWriteKeepsItsFirstBytes) {
  auto file = open("/d/a");
  fs.set_fault(CrashingFileSystem::Fault{
      .call = fs.calls(), .error = Error(Code::kExhausted, "full"), .write_bytes = 3});
  EXPECT_EQ(file->write("12345").error().code(), Code::kExhausted);
  EXPECT_EQ(fs.hit(), "write /d/a");
  EXPECT_EQ(read_file(fs, "/d/a").value(), "123");
}

TEST_F(Crash, FullDiskRefusesWritesAndReportsFreeSpace) {
  fs.set_capacity(100);
  auto file = open("/d/a");
  ASSERT_TRUE(file->write(std::string(90, 'x')).ok());
  EXPECT_EQ(file->write(std::string(20, 'x')).error().code(), Code::kExhausted);
  EXPECT_EQ(fs.space("/d").value().available_bytes, 10u);
  ASSERT_TRUE(fs.remove("/d/a").ok());
  EXPECT_EQ(fs.space("/d").value().available_bytes, 100u);
}

TEST_F(Crash, AtomicWriteShowsTheOldOrNewFileAtEveryCall) {
  durable("/d/a", "old");
  int points = 0;
  fs.on_call([&](std::string_view, const Path&) {
    ++points;
    EXPECT_THAT(contents("/d/a"), IsSubsetOf({"old", "new"}));
    return Status();
  });
  ASSERT_TRUE(write_file_atomically(fs, "/d/a", "new").ok());
  fs.on_call({});
  EXPECT_GE(points, 5);
  EXPECT_THAT(contents("/d/a"), ElementsAre("new"));
}

TEST_F(Crash, LeftoversOfAnAtomicWriteAreRemoved) {
  bool seen = false;
  fs.on_call([&](std::string_view call, const Path&) {
    if (call != "rename") return Status();
    const auto next = fs.killed();
    seen = next->list("/d").value().size() == 1;
    EXPECT_TRUE(remove_leftovers(*next, "/d").ok());
    EXPECT_THAT(next->list("/d").value(), ElementsAre());
    return Status();
  });
  ASSERT_TRUE(write_file_atomically(fs, "/d/a", "new").ok());
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace varda::os::testing
