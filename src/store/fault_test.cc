// The store on a disk that fails, fills up or is slow, at every call. Acknowledged data is never
// lost, and reads continue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <latch>
#include <sqlite3.h>
#include <thread>

#include "os/testing/faults.h"
#include "store/internal/journal.h"
#include "store/room.h"
#include "store/testing/sqlite_vfs.h"
#include "store/testing/store_model.h"

namespace varda::store {
namespace fault_test {

using os::testing::CrashingFileSystem;
using ::testing::HasSubstr;
using testing::SqliteRandomness;
using testing::SqliteVfs;
using testing::StoreModel;

constexpr const char* kFile = "/data/store.db";

class StoreFaults : public ::testing::Test {
 protected:
  static std::unique_ptr<CrashingFileSystem> new_disk() {
    auto fs = std::make_unique<CrashingFileSystem>();
    CHECK(fs->make_directories("/data", 0755).ok() && fs->sync_directory("/").ok());
    return fs;
  }
  static Result<std::unique_ptr<Store>> open(CrashingFileSystem& fs, const SqliteVfs& vfs) {
    internal::SqliteOptions sqlite;
    sqlite.fs = &fs;
    sqlite.vfs = vfs.name();
    sqlite.checkpoint_pages = 12;
    TRY(internal::OpenedJournal opened, internal::open_sqlite_journal(kFile, sqlite));
    return internal::make_store({}, std::move(opened.journal), std::move(opened.loaded));
  }
  // Checks that the store holds the model, with or without the unacknowledged transaction.
  static std::string compare(Store& store, const StoreModel& model,
                             const StoreModel::Events& unknown, Rng& rng) {
    StoreModel now = model;
    if (!unknown.empty() && store.revision() == model.revision() + 1) now.apply(unknown);
    return now.difference(store, 0, 0, rng);
  }

  struct Outcome {
    StoreModel model;            // acknowledged transactions
    StoreModel::Events unknown;  // of the last transaction, if it failed
    bool refused = false;        // the store stopped writing
    std::string wrong;
  };
  // Runs some transactions, whatever the disk does.
  static Outcome work(CrashingFileSystem& fs, const SqliteVfs& vfs, std::unique_ptr<Store>& store,
                      int steps = 14) {
    Outcome out;
    const auto rng = seeded_rng(5);
    const SqliteRandomness same(5);
    for (int step = 0; step < steps && out.wrong.empty(); ++step) {
      if (store == nullptr || step == steps / 2) {
        store.reset();
        auto opened = open(fs, vfs);
        if (!opened.ok()) opened = open(fs, vfs);  // the operator's second attempt
        if (!opened.ok()) return out;
        store = std::move(*opened);
        out.refused = false;
        out.wrong = compare(*store, out.model, out.unknown, *rng);
        if (store->revision() > out.model.revision()) out.model.apply(out.unknown);
        out.unknown.clear();
        continue;
      }
      std::vector<Op> ops = testing::draw_transaction(out.model, *rng);
      const auto planned = out.model.plan(ops);
      const auto revision = store->commit(std::move(ops));
      if (revision.ok()) {
        if (out.refused && !planned->empty()) out.wrong = "a commit after a refusal";
        if (!planned.ok() || *revision != out.model.revision() + (planned->empty() ? 0 : 1)) {
          out.wrong = "an answer that is not the model's";
        } else {
          out.model.apply(*planned);
          if (!planned->empty()) out.unknown.clear();
        }
      } else if (revision.error().code() == Code::kUnavailable) {
        if (revision.error().message().find("start") == std::string::npos)
          out.wrong = "what to do is not said: " + revision.error().message();
        out.refused = true;
      } else if (planned.ok()) {
        if (!out.refused) out.unknown = *planned;
        // Reads continue and show all acknowledged data.
        out.wrong = out.model.difference(*store, 0, 0, *rng);
        if (!out.wrong.empty()) out.wrong = "read after a failed commit: " + out.wrong;
      }
    }
    return out;
  }
};

TEST_F(StoreFaults, EveryFaultKeepsAcknowledgedCommits) {
  std::uint64_t calls = 0;
  {
    const auto fs = new_disk();
    const SqliteVfs vfs(*fs);
    std::unique_ptr<Store> store;
    const Outcome fine = work(*fs, vfs, store);
    ASSERT_EQ(fine.wrong, "");
    ASSERT_GE(fine.model.revision(), 8);
    calls = fs->calls();
  }
  std::uint64_t hits = 0;
  const std::uint64_t every = os::testing::fault_every(5);
  for (std::uint64_t call = 2; call < calls; call += every) {
    for (const os::testing::NamedFault& fault : os::testing::faults_at(call)) {
      const auto fs = new_disk();
      SCOPED_TRACE(fault.name);
      const auto rng = seeded_rng(call);
      const SqliteVfs vfs(*fs);
      std::unique_ptr<Store> store;
      fs->set_fault(fault.fault);
      const Outcome out = work(*fs, vfs, store);
      SCOPED_TRACE(fs->hit());
      hits += fs->hit().empty() ? 0 : 1;
      ASSERT_EQ(out.wrong, "");
      fs->set_fault(std::nullopt);
      // Then, on a repaired disk: power loss, a kill followed by power loss, or a clean shutdown.
      const auto dark = fs->crashed(call), killed = fs->killed();
      store.reset();
      for (CrashingFileSystem* left : {dark.get(), killed.get(), fs.get()}) {
        const SqliteVfs left_vfs(*left);
        auto again = open(*left, left_vfs);
        ASSERT_TRUE(again.ok()) << again.error();
        ASSERT_EQ(compare(**again, out.model, out.unknown, *rng), "");
        if (left == dark.get()) continue;
        const auto later = left->crashed(call + 1);
        const Revision seen = (*again)->revision();
        const SqliteVfs later_vfs(*later);
        auto last = open(*later, later_vfs);
        ASSERT_TRUE(last.ok()) << last.error();
        ASSERT_EQ((*last)->revision(), seen);
        ASSERT_EQ(compare(**last, out.model, out.unknown, *rng), "");
      }
    }
  }
  EXPECT_GE(hits, (calls - 2) / every);
}

TEST_F(StoreFaults, FailedSyncStopsWritesUntilTheStoreIsReopened) {
  bool fail = false;  // outlives the store, because closing the store calls the disk once more
  const auto fs = new_disk();
  const SqliteVfs vfs(*fs);
  auto store = open(*fs, vfs).value();
  ASSERT_TRUE(store->put("a", "1").ok());
  fail = true;
  fs->on_call([&](std::string_view call, const os::Path& path) -> Status {
    if (fail && call == "sync" && path.string().ends_with("-wal"))
      return Error(Code::kInternal, "Input/output error");
    return {};
  });
  EXPECT_FALSE(store->put("a", "2").ok());
  fail = false;
  const auto refused = store->put("b", "1");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::kUnavailable);
  EXPECT_THAT(refused.error().message(), HasSubstr("start"));  // the message names a remedy
  EXPECT_EQ(*store->get("a").value()->value, "1");
  store = nullptr;
  store = open(*fs, vfs).value();
  EXPECT_TRUE(store->put("b", "1").ok());
}

TEST_F(StoreFaults, FullDiskAllowsDeletionsWhichFreeSpace) {
  const auto fs = new_disk();
  fs->set_capacity(12 << 20);
  const SqliteVfs vfs(*fs);
  auto store = open(*fs, vfs).value();
  StoreModel model;
  const auto rng = seeded_rng(1);
  Result<Revision> last = Revision{0};
  for (int i = 0; last.ok(); ++i) {
    ASSERT_LT(i, 2000);
    const std::vector<Op> ops{
        Put{.key = "/a/" + std::to_string(i), .value = std::string(20'000, 'x')}};
    last = store->commit(ops);
    if (last.ok()) model.apply(*model.plan(ops));
  }
  EXPECT_EQ(last.error().code(), Code::kExhausted);
  const Status room = room_for_objects(*fs, kFile);
  ASSERT_FALSE(room.ok());
  EXPECT_EQ(room.error().code(), Code::kExhausted);
  EXPECT_THAT(room.error().message(),
              ::testing::ContainsRegex("the disk of .* is full \\([0-9.]+ MiB left\\)"));
  EXPECT_THAT(last.error().message(), HasSubstr("or delete objects, which still works"));
  ASSERT_GT(model.revision(), 50);
  ASSERT_EQ(model.difference(*store, 0, 0, *rng), "");
  for (int i = 0; i < 40; ++i) {
    const std::vector<Op> ops{Delete{.key = "/a/" + std::to_string(i)}};
    ASSERT_TRUE(store->commit(ops).ok()) << i;
    model.apply(*model.plan(ops));
  }
  // The full disk also crashes.
  const auto left = fs->crashed(3);
  const SqliteVfs left_vfs(*left);
  auto again = open(*left, left_vfs);
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_EQ(model.difference(**again, 0, (*again)->oldest(), *rng), "");  // drops history first
  EXPECT_LT((*again)->oldest(), model.revision());
  ASSERT_TRUE(store->compact(store->revision()).ok());
  EXPECT_TRUE(store->put("/a/0", std::string(20'000, 'y')).ok());
  fs->set_capacity(64 << 20);
  EXPECT_TRUE(room_for_objects(*fs, kFile).ok());
}

TEST_F(StoreFaults, UpdatesOnAFullDiskKeepTheReserveForDeletions) {
  const auto fs = new_disk();
  fs->set_capacity(12 << 20);
  const SqliteVfs vfs(*fs);
  auto store = open(*fs, vfs).value();
  StoreModel model;
  const auto rng = seeded_rng(1);
  const auto commit = [&](const std::vector<Op>& ops) {
    const auto done = store->commit(ops);
    if (done.ok()) model.apply(*model.plan(ops));
    return done;
  };
  ASSERT_TRUE(commit({Put{.key = "/heartbeat", .value = std::string(8000, 'a')}}).ok());
  int made = 0;
  while (commit({Put{.key = "/a/" + std::to_string(made), .value = std::string(20'000, 'x')}}).ok())
    ASSERT_LT(++made, 1000);
  // A reserve without limits would allow about 150 of these.
  for (int i = 0; i < 600; ++i) {
    const auto changed = commit(
        {Put{.key = "/heartbeat", .value = std::string(8000, static_cast<char>('a' + i % 26))}});
    ASSERT_TRUE(changed.ok()) << i << ": " << changed.error();
  }
  EXPECT_EQ(store->put("/a/more", std::string(400'000, 'x')).error().code(), Code::kExhausted);
  // After a restart, the store still knows that the disk is full.
  store.reset();
  store = open(*fs, vfs).value();
  for (int i = 0; i < 600; ++i) {
    const auto changed = commit(
        {Put{.key = "/heartbeat", .value = std::string(8000, static_cast<char>('a' + i % 26))}});
    ASSERT_TRUE(changed.ok()) << i << ": " << changed.error();
  }
  for (int i = 0; i < made; ++i)
    ASSERT_TRUE(commit({Delete{.key = "/a/" + std::to_string(i)}}).ok()) << i;
  const auto left = fs->crashed(3);
  const SqliteVfs left_vfs(*left);
  auto again = open(*left, left_vfs);
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_EQ(model.difference(**again, 0, (*again)->oldest(), *rng), "");
  EXPECT_LT((*again)->oldest(), model.revision());
}

TEST_F(StoreFaults, SlowDiskBlocksOnlyWriters) {
  // In turn, each disk call of a commit blocks until all other clients are served.
  for (std::uint64_t slow = 0;; ++slow) {
    const auto fs = new_disk();
    const SqliteVfs vfs(*fs);
    auto store = open(*fs, vfs).value();
    ASSERT_TRUE(store->put("/a/before", "1").ok());
    const auto watch = store->watch("/a/", 1).value();
    std::latch reached(1), released(1);
    std::uint64_t seen = 0;
    bool held = false;
    fs->on_call([&](std::string_view, const os::Path&) {
      if (seen++ == slow) {
        held = true;
        reached.count_down();
        released.wait();
      }
      return Status();
    });
    std::jthread writer([&] {
      EXPECT_EQ(store->put("/a/slow", std::string(9000, 'x')).value(), 2);
      if (!held) reached.count_down();
    });
    reached.wait();
    const bool in_the_middle = held;
    if (in_the_middle) {
      EXPECT_EQ(store->revision(), 1);
      EXPECT_EQ(*store->get("/a/before").value()->value, "1");
      EXPECT_EQ(store->list({}).value().entries.size(), 1u);
      EXPECT_EQ(store->watch("", 0).value()->poll().value().size(), 1u);
      EXPECT_TRUE(watch->poll().value().empty());
    }
    released.count_down();
    writer.join();
    fs->on_call({});
    EXPECT_EQ(watch->poll().value().size(), 1u);
    if (!in_the_middle) {
      EXPECT_GE(slow, 8u);
      return;
    }
  }
}

TEST_F(StoreFaults, SqliteWithoutMemoryLosesNoCommit) {
  struct Limit {
    explicit Limit(std::int64_t bytes) { sqlite3_hard_heap_limit64(bytes); }
    ~Limit() { sqlite3_hard_heap_limit64(0); }
  };
  std::uint64_t failed = 0;
  for (std::int64_t room = 0; room < 160'000; room += 1'500) {
    SCOPED_TRACE(room);
    const auto fs = new_disk();
    const SqliteVfs vfs(*fs);
    std::unique_ptr<Store> store = open(*fs, vfs).value();
    const auto rng = seeded_rng(9);
    StoreModel model;
    StoreModel::Events unknown;
    {
      const Limit limit(sqlite3_memory_used() + room);
      for (int step = 0; step < 6; ++step) {
        const std::vector<Op> ops = testing::draw_transaction(model, *rng);
        const auto planned = model.plan(ops);
        const auto revision = store->commit(ops);
        if (!planned.ok()) continue;
        if (revision.ok()) {
          model.apply(*planned);
          unknown.clear();
        } else {
          ++failed;
          unknown = *planned;
        }
      }
    }
    ASSERT_EQ(model.difference(*store, 0, 0, *rng), "");
    const auto left = fs->crashed(static_cast<std::uint64_t>(room));
    const SqliteVfs left_vfs(*left);
    auto again = open(*left, left_vfs);
    ASSERT_TRUE(again.ok()) << again.error();
    ASSERT_EQ(compare(**again, model, unknown, *rng), "");
  }
  EXPECT_GT(failed, 5u);
}

}  // namespace fault_test
}  // namespace varda::store
