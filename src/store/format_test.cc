// Old formats are upgraded once, also after crashes; newer formats are rejected; whole stores move
// as values.
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/file_system.h"
#include "store/internal/journal.h"
#include "store/snapshot.h"

namespace varda::store {
namespace {

using ::testing::HasSubstr;

class StoreFormat : public ::testing::Test {
 protected:
  void SetUp() override {
    // In memory if possible: these tests do not need syncs, which take minutes on a slow disk.
    const bool memory = ::access("/dev/shm", W_OK) == 0;
    std::string pattern = (memory ? "/dev/shm/" : ::testing::TempDir()) + "format_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::filesystem::path file(const std::string& suffix = "") const {
    return root_ / ("store.db" + suffix);
  }

  void run_sql(const std::string& sql) const {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(file().c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(db);
    sqlite3_close(db);
  }
  std::string query(const std::string& sql) const { return query(file(), sql); }
  static std::string query(const std::filesystem::path& path, const std::string& sql) {
    sqlite3* db = nullptr;
    std::string out;
    EXPECT_EQ(sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE, nullptr), SQLITE_OK);
    const auto row = [](void* to, int, char** values, char**) {
      *static_cast<std::string*>(to) = values[0] == nullptr ? "" : values[0];
      return 0;
    };
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), row, &out, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    sqlite3_close(db);
    return out;
  }
  /// The store left by the first format's program: 14 revisions.
  void first_format() const {
    std::ifstream in((std::filesystem::path(VARDA_TESTDATA) / "../../../tests/fixtures/store-1.sql")
                         .lexically_normal());
    const std::string sql{std::istreambuf_iterator<char>(in), {}};
    ASSERT_FALSE(sql.empty());
    run_sql(sql + "PRAGMA journal_mode=WAL;");
  }
  /// Checks that nothing is lost or changed.
  static void expect_all_of_first(Store& store) {
    static constexpr const char* kSurvivor = "/registry/core/configmaps/default/kept";
    EXPECT_EQ(store.oldest(), 0);
    const auto survivor = store.get(kSurvivor).value();
    ASSERT_TRUE(survivor);
    EXPECT_THAT(*survivor->value, HasSubstr(R"("n":"3")"));
    EXPECT_FALSE(store.get("/registry/core/configmaps/default/gone").value().has_value());
    std::vector<std::string> seen;
    for (const Event& event : store.watch(kSurvivor, 0).value()->poll().value())
      seen.push_back(event.entry.value->substr(event.entry.value->find(R"("n":)"), 7));
    EXPECT_THAT(seen, ::testing::ElementsAre(R"("n":"1")", R"("n":"2")", R"("n":"3")"));
    Revision next = 0;
    for (const Event& event : store.watch("", 0).value()->poll(1000).value())
      EXPECT_EQ(event.entry.modified, ++next);
    EXPECT_EQ(next, store.revision());
  }

  std::filesystem::path root_;
};

TEST_F(StoreFormat, FirstFormatIsUpgradedOnceWithValuesAndHistory) {
  first_format();
  {
    const auto store = open_sqlite(file()).value();
    expect_all_of_first(*store);
    EXPECT_TRUE(store->put("new", "1").ok());
  }
  EXPECT_EQ(query("PRAGMA user_version"), "2");
  EXPECT_EQ(query("PRAGMA auto_vacuum"), "2");  // incremental
  EXPECT_EQ(query("SELECT value FROM about WHERE name='written_by'"), VARDA_VERSION);
  const std::string id = query("SELECT value FROM about WHERE name='id'");
  EXPECT_EQ(id.size(), 32u);
  // The old file is unchanged, for the program that wrote it.
  EXPECT_EQ(query(file(".format-1"), "PRAGMA user_version"), "1");
  EXPECT_EQ(query(file(".format-1"), "PRAGMA integrity_check"), "ok");
  std::filesystem::remove(file(".format-1"));
  EXPECT_EQ(open_sqlite(file()).value()->get("new").value()->created, 15);
  EXPECT_FALSE(std::filesystem::exists(file(".format-1")));  // no second upgrade
  EXPECT_EQ(query("SELECT value FROM about WHERE name='id'"), id);
}

TEST_F(StoreFormat, KilledUpgradeIsCompletedByTheNextOpen) {
  int points = 0;
  for (bool reached = true; reached; ++points) {
    for (const auto& entry : std::filesystem::directory_iterator(root_))
      std::filesystem::remove(entry.path());
    first_format();
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      int left = points;
      const auto opened =
          internal::open_sqlite_journal(file(), {.pages_max = 0, .at = [&left](std::string_view) {
                                                   if (left-- == 0) ::_exit(9);
                                                 }});
      ::_exit(opened.ok() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status));
    reached = WEXITSTATUS(status) == 9;
    ASSERT_EQ(WEXITSTATUS(status), reached ? 9 : 0);
    auto store = open_sqlite(file());
    ASSERT_TRUE(store.ok()) << points << ": " << store.error();
    expect_all_of_first(**store);
    store->reset();
    EXPECT_EQ(query("PRAGMA user_version"), "2");
    EXPECT_EQ(query(file(".format-1"), "PRAGMA user_version"), "1") << points;
    EXPECT_FALSE(std::filesystem::exists(file(".upgrade")));
  }
  EXPECT_EQ(points, 6);  // five places to crash, and one run without a crash
}

TEST_F(StoreFormat, NewerFormatIsRefusedAndNamesTheNeededVersion) {
  open_sqlite(file()).value().reset();
  run_sql("PRAGMA user_version=3; UPDATE about SET value='7.5.0' WHERE name='needs'");
  const auto opened = open_sqlite(file());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code(), Code::kUnsupported);
  EXPECT_THAT(opened.error().message(), HasSubstr("use varda 7.5.0 or newer"));
  EXPECT_EQ(query("PRAGMA user_version"), "3");
}

TEST_F(StoreFormat, FileShrinksAfterManyDeletions) {
  const auto store = open_sqlite(file()).value();
  std::vector<Op> ops;
  for (int i = 0; i < 4000; ++i)
    ops.emplace_back(Put{.key = "k" + std::to_string(i), .value = std::string(8000, 'x')});
  (void)store->commit(std::move(ops)).value();
  EXPECT_GT(std::filesystem::file_size(file()), 30u << 20);
  std::vector<Op> deletions;
  for (int i = 0; i < 4000; ++i) deletions.emplace_back(Delete{.key = "k" + std::to_string(i)});
  (void)store->commit(std::move(deletions)).value();
  for (int i = 0; i < 100 && std::filesystem::file_size(file()) > (12u << 20); ++i)
    ASSERT_TRUE(store->compact(store->put("few", std::to_string(i)).value()).ok());
  EXPECT_LT(std::filesystem::file_size(file()), 12u << 20);
}

TEST_F(StoreFormat, FileSizeIsBoundedOverManyUpdatesOfFewKeys) {
  metrics::Registry registry;
  const auto store =
      open_sqlite(file(),
                  {.history_events_max = 5000, .history_bytes_max = 4u << 20, .metrics = &registry})
          .value();
  std::uintmax_t most = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<Op> ops;
    for (int j = 0; j < 50; ++j)
      ops.emplace_back(
          Put{.key = "k" + std::to_string(j), .value = std::string(1000, 'a' + i % 26)});
    (void)store->commit(std::move(ops)).value();
    most = std::max(most,
                    std::filesystem::file_size(file()) + std::filesystem::file_size(file("-wal")));
  }
  EXPECT_LT(most, 48u << 20);
  const std::string text = registry.text();
  EXPECT_THAT(text, HasSubstr("varda_store_revision 2000\n"));
  EXPECT_THAT(text,
              HasSubstr("varda_store_oldest_revision " + std::to_string(store->oldest()) + "\n"));
  EXPECT_GT(store->oldest(), 1800);
  EXPECT_THAT(text, ::testing::ContainsRegex("varda_store_file_bytes\\{part=\"log\"\\} [1-9]"));
  EXPECT_THAT(text, ::testing::ContainsRegex("varda_store_compactions_total [1-9]"));
}

TEST_F(StoreFormat, RestoredStoreKeepsValuesAndRefusesOldRevisions) {
  first_format();
  const Page read = read_sqlite(file()).value();
  EXPECT_EQ(query("PRAGMA user_version"), "1");  // reading does not upgrade the file
  EXPECT_EQ(read.revision, 14);
  const Revision begin = revision_after_restore(read.revision, system_clock().wall());
  const std::filesystem::path other = root_ / "other.db";
  {
    auto writer = SqliteWriter::create(other).value();
    for (const Entry& entry : read.entries) ASSERT_TRUE(writer->add(entry.key, *entry.value).ok());
    EXPECT_EQ(writer->add(read.entries[0].key, "again").error().code(), Code::kInvalid);
    ASSERT_TRUE(writer->finish(begin).ok());
  }
  const auto store = open_sqlite(other).value();
  const Page restored = store->list({}).value();
  ASSERT_EQ(restored.entries.size(), read.entries.size());
  for (std::size_t i = 0; i < restored.entries.size(); ++i) {
    EXPECT_EQ(restored.entries[i].key, read.entries[i].key);
    EXPECT_EQ(*restored.entries[i].value, *read.entries[i].value);
    EXPECT_EQ(restored.entries[i].modified, begin);
  }
  // A client saw newer revisions of the lost store than the backup has.
  EXPECT_EQ(store->watch("", 400).error().code(), Code::kGone);
  EXPECT_TRUE(store->watch("", begin).ok());
  EXPECT_EQ(store->put("next", "1").value(), begin + 1);
}

TEST_F(StoreFormat, UnfinishedWriterLeavesNoFile) {
  {
    auto writer = SqliteWriter::create(file()).value();
    ASSERT_TRUE(writer->add("a", "1").ok());
    EXPECT_EQ(SqliteWriter::create(file()).error().code(), Code::kAlreadyExists);
  }
  EXPECT_TRUE(std::filesystem::is_empty(root_));
  EXPECT_EQ(read_sqlite(file()).error().code(), Code::kNotFound);
}

TEST(RevisionAfterRestore, RevisionAfterRestoreExceedsEveryEarlierRevision) {
  const auto at = [](long long microseconds) {
    return std::chrono::system_clock::time_point(std::chrono::microseconds(microseconds));
  };
  constexpr long long kNow = 1'790'000'000'000'000;
  EXPECT_EQ(revision_after_restore(17, at(kNow)), kNow);
  // The same backup restored twice, with a million writes in between.
  EXPECT_GT(revision_after_restore(17, at(kNow + 60'000'000)), kNow + 1'000'000);
  // A backup of a restored store, with a clock in 1970.
  EXPECT_GT(revision_after_restore(kNow + 5, at(0)), kNow + 1'000'000);
  EXPECT_LT(revision_after_restore(17, at(kNow)), 1LL << 53);
}

}  // namespace
}  // namespace varda::store
