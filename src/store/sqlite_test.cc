// Promises of the store on disk: acknowledged data survives, and foreign files stay unchanged.
#include <atomic>
#include <chrono>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <latch>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/rng.h"
#include "os/file_system.h"
#include "store/internal/journal.h"
#include "store/store.h"

namespace varda::store {
namespace {

using ::testing::HasSubstr;

class SqliteStore : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "sqlite_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::filesystem::path file() const { return root_ / "store.db"; }
  void run_sql(const std::string& sql) const {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(file().c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(db);
    sqlite3_close(db);
  }

  std::filesystem::path root_;
};

TEST_F(SqliteStore, ValuesRevisionsAndHistoryContinueAfterReopen) {
  {
    auto store = open_sqlite(file()).value();
    (void)store->put("a", "1").value();
    (void)store->put("a", std::string("2\0x", 3)).value();
    (void)store->put("empty", "").value();
    (void)store->remove("a").value();
    (void)store->put("b", "1").value();
  }
  auto store = open_sqlite(file()).value();
  EXPECT_EQ(store->revision(), 5);
  EXPECT_EQ(store->oldest(), 0);
  EXPECT_EQ(*store->get("empty").value()->value, "");
  EXPECT_EQ(store->get("b").value()->created, 5);
  const Page then = store->list({.prefix = "", .start_after = "", .limit = 0, .at = 3}).value();
  ASSERT_EQ(then.entries.size(), 2u);
  EXPECT_EQ(*then.entries[0].value, std::string("2\0x", 3));
  EXPECT_EQ(then.entries[0].created, 1);
  EXPECT_EQ(then.entries[0].modified, 2);
  const auto events = store->watch("a", 1).value()->poll().value();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(*events[0].previous, "1");
  EXPECT_EQ(events[1].type, EventType::kDelete);
  EXPECT_EQ(*events[1].entry.value, std::string("2\0x", 3));
  EXPECT_EQ(store->put("c", "1").value(), 6);
}

TEST_F(SqliteStore, FilesAreReadableByTheOwnerOnly) {
  const auto mode = [](const std::filesystem::path& path) {
    return os::real_file_system().stat(path).value()->mode;
  };
  const mode_t before = ::umask(0);
  {
    auto store = open_sqlite(file()).value();
    (void)store->put("secret", "1").value();
    EXPECT_EQ(mode(file()), 0600u);
    EXPECT_EQ(mode(file().string() + "-wal"), 0600u);
  }
  ASSERT_TRUE(os::real_file_system().set_mode(file(), 0644).ok());
  auto store = open_sqlite(file()).value();
  EXPECT_EQ(mode(file()), 0600u);
  EXPECT_EQ(*store->get("secret").value()->value, "1");
  ::umask(before);
}

TEST_F(SqliteStore, CompactionPersistsAfterReopen) {
  {
    auto store = open_sqlite(file()).value();
    for (int i = 0; i < 10; ++i) (void)store->put("a", std::to_string(i)).value();
    ASSERT_TRUE(store->compact(10).ok());
  }
  auto store = open_sqlite(file()).value();
  EXPECT_EQ(store->revision(), 10);
  EXPECT_EQ(store->oldest(), 10);
  EXPECT_EQ(store->watch("", 9).error().code(), Code::kGone);
  EXPECT_TRUE(store->watch("", 10).ok());
}

TEST_F(SqliteStore, RemovedHistoryShrinksTheFile) {
  const Options options{.history_events_max = 10};
  auto store = open_sqlite(file(), options).value();
  for (int i = 0; i < 600; ++i) (void)store->put("a", std::string(1000, 'x')).value();
  store.reset();
  EXPECT_LT(std::filesystem::file_size(file()), 600'000u);
  EXPECT_EQ(open_sqlite(file(), options).value()->oldest(), 590);
}

TEST_F(SqliteStore, SecondOpenerIsRefused) {
  auto store = open_sqlite(file()).value();
  const auto second = open_sqlite(file());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), Code::kUnavailable);
  EXPECT_THAT(second.error().message(), HasSubstr(std::to_string(::getpid())));
}

TEST_F(SqliteStore, ForeignNewerAndDamagedFilesAreRefused) {
  run_sql("CREATE TABLE notes(text)");
  EXPECT_EQ(open_sqlite(file()).error().code(), Code::kCorrupt);
  std::filesystem::remove(file());
  open_sqlite(file()).value().reset();
  run_sql("PRAGMA user_version=99");
  EXPECT_EQ(open_sqlite(file()).error().code(), Code::kUnsupported);
  EXPECT_THAT(open_sqlite(file()).error().message(), HasSubstr("newer version"));
  std::ofstream(file(), std::ios::trunc) << std::string(8192, 'z');
  EXPECT_EQ(open_sqlite(file()).error().code(), Code::kCorrupt);
  EXPECT_EQ(open_sqlite(root_ / "no" / "store.db").error().code(), Code::kNotFound);
}

// Pages may be intact while numbers are wrong: a flipped bit must not make revisions decrease.
TEST_F(SqliteStore, ImpossibleRevisionsAreRefused) {
  for (const char* damage :
       {"UPDATE meta SET value=1 WHERE name='revision'",
        "UPDATE meta SET value=-4 WHERE name='revision'",
        "UPDATE meta SET value=99 WHERE name='compacted'",
        "UPDATE meta SET value=-1 WHERE name='compacted'", "UPDATE objects SET modified=77",
        "UPDATE objects SET created=0", "UPDATE objects SET created=4, modified=3",
        "UPDATE events SET revision=9 WHERE revision=2", "UPDATE events SET previous_modified=5",
        "UPDATE events SET created=-1"}) {
    SCOPED_TRACE(damage);
    std::filesystem::remove(file());
    {
      auto store = open_sqlite(file()).value();
      for (const char* value : {"1", "2", "3"}) (void)store->put("a", value).value();
    }
    run_sql(damage);
    const auto store = open_sqlite(file());
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.error().code(), Code::kCorrupt);
    EXPECT_THAT(store.error().message(), HasSubstr("damaged"));
  }
}

TEST_F(SqliteStore, FullDiskReturnsExhaustedAndReadsContinue) {
  auto opened = internal::open_sqlite_journal(file(), {.pages_max = 60}).value();
  auto store = internal::make_store({}, std::move(opened.journal), std::move(opened.loaded));
  auto watch = store->watch("", 0).value();
  Revision last = 0;
  Result<Revision> put = Revision{0};
  for (int i = 0;
       i < 1000 && (put = store->put("k" + std::to_string(i), std::string(3000, 'x'))).ok(); ++i)
    last = *put;
  ASSERT_FALSE(put.ok());
  EXPECT_EQ(put.error().code(), Code::kExhausted);
  EXPECT_EQ(store->revision(), last);
  EXPECT_EQ(store->list({}).value().entries.size(), static_cast<std::size_t>(last));
  EXPECT_EQ(watch->poll(10'000).value().size(), static_cast<std::size_t>(last));
  EXPECT_EQ(store->remove("k0").value(), last + 1);  // deletions use the reserve
  EXPECT_FALSE(store->get("k0").value().has_value());
  ++last;
  ASSERT_TRUE(store->compact(last).ok());  // space again
  EXPECT_EQ(store->put("small", "x").value(), last + 1);
}

TEST_F(SqliteStore, DeletionsOnAFullDiskSucceedDuringLargeWrites) {
  auto opened = internal::open_sqlite_journal(file(), {.pages_max = 60}).value();
  auto store = internal::make_store({.value_bytes_max = 16u << 20}, std::move(opened.journal),
                                    std::move(opened.loaded));
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(store->put("k" + std::to_string(i), std::string(3000, 'x')).ok());
  std::atomic<bool> stop{false};
  std::vector<std::jthread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&, w] {
      // Larger than the disk plus the reserve.
      while (!stop)
        EXPECT_EQ(store->put("big" + std::to_string(w), std::string(6u << 20, 'x')).error().code(),
                  Code::kExhausted);
    });
  }
  for (int i = 0; i < 20; ++i) {
    const auto removed = store->remove("k" + std::to_string(i));
    EXPECT_TRUE(removed.ok()) << removed.error();
  }
  stop = true;
  writers.clear();
  EXPECT_TRUE(store->list({}).value().entries.empty());
  EXPECT_EQ(store->revision(), 40);
}

// A process limit replaces a quota: both fail writes with an error that SQLite does not treat as a
// full disk.
TEST_F(SqliteStore, ExceededQuotaReturnsExhaustedAndWritesResume) {
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    auto store = open_sqlite(file()).value();
    if (!store->put("a", "1").ok()) ::_exit(1);
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{.rlim_cur = 100'000, .rlim_max = before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    Result<Revision> put = Revision{0};
    for (int i = 0; i < 100 && put.ok(); ++i) put = store->put("b", std::string(50'000, 'x'));
    if (put.ok()) ::_exit(2);
    if (put.error().code() != Code::kExhausted) ::_exit(3);
    if (*store->get("a").value()->value != "1") ::_exit(4);
    ::setrlimit(RLIMIT_FSIZE, &before);
    ::_exit(store->put("c", "1").ok() ? 0 : 5);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(open_sqlite(file()).value()->get("c").value().has_value());
}

TEST_F(SqliteStore, ConcurrentCommitsShareSyncs) {
  metrics::Registry registry;
  auto store = open_sqlite(file(), {.metrics = &registry}).value();
  const auto total = [&](const char* name) { return registry.counter(name, "").value(); };
  // Where syncs are fast (disk in memory), two writers meet by chance only: retry until they do.
  const Context limit = Context::background().with_timeout(std::chrono::seconds(60));
  double commits = 0;
  do {
    std::latch together(16);
    std::vector<std::jthread> writers;
    for (int w = 0; w < 16; ++w) {
      writers.emplace_back([&, w] {
        together.arrive_and_wait();
        for (int i = 0; i < 50; ++i) (void)store->put(std::to_string(w), std::to_string(i)).value();
      });
    }
    writers.clear();
    commits += 16 * 50;
    ASSERT_EQ(total("varda_store_commits_total"), commits);
  } while (total("varda_store_batches_total") == commits && !limit.done());
  EXPECT_LT(total("varda_store_batches_total"), commits);
}

// A child process writes from four threads, reports each acknowledged write through a pipe, and is
// killed at some moment.
TEST_F(SqliteStore, EveryAcknowledgedWriteSurvivesSigkill) {
  const auto rng = seeded_rng(7);
  std::map<std::string, int> acknowledged;
  for (int round = 0; round < 8; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      ::close(ends[0]);
      auto store = open_sqlite(file());
      if (!store.ok()) ::_exit(1);
      std::vector<std::thread> writers;
      for (int w = 0; w < 4; ++w) {
        writers.emplace_back([&, w] {
          for (int i = 1;; ++i) {
            const int value = round * 1'000'000 + i;
            if (!(*store)->put("k" + std::to_string(w), std::to_string(value)).ok()) ::_exit(2);
            const int record[2] = {w, value};
            if (::write(ends[1], record, sizeof(record)) != sizeof(record)) ::_exit(3);
          }
        });
      }
      for (std::thread& writer : writers) writer.join();
      ::_exit(0);
    }
    ::close(ends[1]);
    const std::uint64_t target = 1 + rng->below(120);
    int record[2];
    std::uint64_t count = 0;
    while (::read(ends[0], record, sizeof(record)) == static_cast<ssize_t>(sizeof(record))) {
      acknowledged["k" + std::to_string(record[0])] = record[1];
      if (++count == target) ::kill(pid, SIGKILL);
    }
    ::close(ends[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status)) << "child ended by itself: " << WEXITSTATUS(status);

    auto store = open_sqlite(file());
    ASSERT_TRUE(store.ok()) << store.error();
    for (const auto& [key, value] : acknowledged) {
      const auto entry = (*store)->get(key).value();
      ASSERT_TRUE(entry) << key;
      EXPECT_GE(std::stoi(*entry->value), value)
          << key;  // a durable write may lack its acknowledgement
    }
    // The history is complete: one event per revision.
    Revision next = (*store)->oldest();
    const auto events = (*store)->watch("", next).value()->poll(1'000'000).value();
    for (const Event& event : events) EXPECT_EQ(event.entry.modified, ++next);
    EXPECT_EQ(next, (*store)->revision());
  }
}

}  // namespace
}  // namespace varda::store
