// The store over SQLite on a disk that crashes at every call and loses any subset of unsynced data:
// docs/design/010-crash-testing.md.
#include <fstream>
#include <gtest/gtest.h>

#include "base/log.h"
#include "os/testing/crash_campaign.h"
#include "store/internal/journal.h"
#include "store/internal/sqlite.h"
#include "store/testing/sqlite_vfs.h"
#include "store/testing/store_model.h"

namespace varda::store {
namespace crash_test {

using os::testing::CrashCampaign;
using os::testing::CrashingFileSystem;
using testing::SavedSqliteRandomness;
using testing::SqliteRandomness;
using testing::SqliteVfs;
using testing::StoreModel;

constexpr const char* kDirectory = "/data";
constexpr const char* kFile = "/data/store.db";

// One seeded run of a store, with the state it must hold at each moment.
class Life {
 public:
  Life(CrashCampaign& campaign, std::uint64_t seed)
      : campaign_(campaign), rng_(seeded_rng(seed)), vfs_(fs_) {
    const SqliteRandomness same(static_cast<int>(seed));
    // Small limits, so that one run trims history and checkpoints often; sometimes SQLite's own
    // limits.
    static constexpr std::size_t kHistory[] = {20, 60, 100'000};
    options_.history_events_max = kHistory[rng_->below(3)];
    static constexpr std::int64_t kPages[] = {4, 12, 12, 40, 40, 0};
    checkpoint_pages_ = kPages[rng_->below(6)];
    if (rng_->below(12) == 0) {
      // Long enough to trim history in groups; only some calls are checked then.
      steps_ = 300;
      odds_ = 40;
    }
    CHECK(fs_.make_directories(kDirectory, 0755).ok() && fs_.sync_directory("/").ok());
  }

  void run() {
    fs_.on_call([this](std::string_view, const os::Path&) {
      if (odds_ > 1 && rng_->below(odds_) > 0) return Status();
      campaign_.point(fs_, promises_,
                      [this](CrashingFileSystem& left, Rng& rng) { return check(left, rng); });
      return Status();
    });
    reopen();
    for (int step = 0; step < steps_ && !campaign_.over(); ++step) {
      const std::uint64_t what = rng_->below(40);
      if (what == 0) {
        reopen();
      } else if (what == 1) {
        compact();
      } else {
        commit();
      }
      ++promises_;
    }
    store_.reset();
    fs_.on_call({});
  }

 private:
  internal::SqliteOptions sqlite(CrashingFileSystem& fs, const SqliteVfs& vfs) const {
    internal::SqliteOptions options;
    options.fs = &fs;
    options.vfs = vfs.name();
    options.checkpoint_pages = checkpoint_pages_;
    return options;
  }
  Result<std::unique_ptr<Store>> open(CrashingFileSystem& fs, const SqliteVfs& vfs) const {
    TRY(internal::OpenedJournal opened, internal::open_sqlite_journal(kFile, sqlite(fs, vfs)));
    return internal::make_store(options_, std::move(opened.journal), std::move(opened.loaded));
  }

  void reopen() {
    store_.reset();
    auto opened = open(fs_, vfs_);
    CHECK(opened.ok());
    store_ = std::move(*opened);
  }
  void commit() {
    std::vector<Op> ops = testing::draw_transaction(model_, *rng_);
    const auto planned = model_.plan(ops);
    if (planned.ok()) under_way_ = *planned;
    const auto revision = store_->commit(std::move(ops));
    CHECK(revision.ok() == planned.ok());
    model_.apply(std::exchange(under_way_, {}));
    if (revision.ok()) CHECK(*revision == model_.revision());
  }
  void compact() {
    const Revision oldest = store_->oldest();
    const Revision revision =
        oldest + static_cast<Revision>(
                     rng_->below(static_cast<std::uint64_t>(model_.revision() - oldest) + 1));
    compacting_ = revision;
    CHECK(store_->compact(revision).ok());
    compacted_ = std::max(compacted_, revision);
  }

  /// The store must hold the acknowledged commits, and all or nothing of the pending one.
  std::string compare(Store& store, Rng& rng, StoreModel* found = nullptr) const {
    StoreModel model = model_;
    if (!under_way_.empty() && store.revision() == model.revision() + 1) model.apply(under_way_);
    const Revision forgotten = std::max(
        {compacted_, compacting_, model.trimmed(options_.history_events_max), store_oldest_max()});
    if (found != nullptr) *found = model;
    return model.difference(store, compacted_, forgotten, rng);
  }
  Revision store_oldest_max() const { return store_ == nullptr ? 0 : store_->oldest(); }

  std::string check(CrashingFileSystem& left, Rng& rng) {
    const SavedSqliteRandomness saved_randomness;
    if (std::string wrong = recovered(left, rng); !wrong.empty()) return "after a crash: " + wrong;
    if (rng.below(4) > 0) return "";
    // Only the process dies and restarts: readers may see data that is not on the disk. Then the
    // power fails.
    const auto next = fs_.killed();
    const SqliteVfs vfs(*next);
    auto store = open(*next, vfs);
    if (!store.ok()) return "after a kill: " + store.error().message();
    StoreModel seen;
    if (std::string wrong = compare(**store, rng, &seen); !wrong.empty())
      return "after a kill: " + wrong;
    const auto dark = next->crashed(rng.next());
    campaign_.count_nested();
    const SqliteVfs dark_vfs(*dark);
    auto again = open(*dark, dark_vfs);
    if (!again.ok()) return "after a kill and a crash: " + again.error().message();
    std::string wrong = seen.difference(
        **again, compacted_,
        std::max((*store)->oldest(), seen.trimmed(options_.history_events_max)), rng);
    return wrong.empty() ? "" : "seen after a kill, gone with a crash: " + wrong;
  }

  std::string recovered(CrashingFileSystem& left, Rng& rng) {
    const SqliteVfs vfs(left);
    std::string nested;
    std::uint64_t last = left.changes();
    if (rng.below(40) == 0) {
      // Recovery also crashes, at each of its calls.
      left.on_call([&](std::string_view, const os::Path&) {
        if (left.changes() == last || !nested.empty()) return Status();
        last = left.changes();
        const auto second = left.crashed(rng.next());
        campaign_.count_nested();
        const SavedSqliteRandomness saved_randomness;
        const SqliteVfs second_vfs(*second);
        auto store = open(*second, second_vfs);
        nested = store.ok() ? compare(**store, rng) : store.error().message();
        return Status();
      });
    }
    auto store = open(left, vfs);
    left.on_call({});
    if (!nested.empty()) return "in recovery: " + nested;
    if (!store.ok()) return store.error().message();
    StoreModel model;
    if (std::string wrong = compare(**store, rng, &model); !wrong.empty()) return wrong;
    if (rng.below(6) > 0) return "";
    // The recovered store continues, and its next commit is durable too.
    const std::vector<Op> ops{Put{.key = "/again", .value = "x"}};
    const auto planned = model.plan(ops);
    const auto revision = (*store)->commit(ops);
    if (!revision.ok()) return "the first commit after it: " + revision.error().message();
    model.apply(*planned);
    const auto second = left.crashed(rng.next());
    campaign_.count_nested();
    const SqliteVfs second_vfs(*second);
    auto again = open(*second, second_vfs);
    if (!again.ok()) return "second crash: " + again.error().message();
    const Revision forgotten =
        std::max((*store)->oldest(), model.trimmed(options_.history_events_max));
    std::string wrong = model.difference(**again, compacted_, forgotten, rng);
    return wrong.empty() ? "" : "second crash: " + wrong;
  }

  CrashCampaign& campaign_;
  const std::unique_ptr<Rng> rng_;
  CrashingFileSystem fs_;
  const SqliteVfs vfs_;
  Options options_;
  std::int64_t checkpoint_pages_ = 0;
  int steps_ = 24;
  std::uint64_t odds_ = 1;
  std::unique_ptr<Store> store_;
  std::uint64_t promises_ = 0;
  StoreModel model_;
  StoreModel::Events under_way_;  // of the pending, unacknowledged commit
  Revision compacted_ = 0, compacting_ = 0;
};

TEST(StoreCrash, EveryCrashKeepsAcknowledgedCommitsAndNoPartialOne) {
  CrashCampaign campaign("store_test --gtest_filter='StoreCrash.*'", 1000);
  while (campaign.next_seed()) Life(campaign, campaign.seed()).run();
  EXPECT_EQ(campaign.failure(), "");
}

// A file of the first format, made by SQLite from the statements in tests/fixtures.
std::unique_ptr<CrashingFileSystem> disk_of_first_format() {
  auto fs = std::make_unique<CrashingFileSystem>();
  CHECK(fs->make_directories(kDirectory, 0755).ok() && fs->sync_directory("/").ok());
  const SqliteVfs vfs(*fs);
  std::ifstream in((std::filesystem::path(VARDA_TESTDATA) / "../../../tests/fixtures/store-1.sql")
                       .lexically_normal());
  const std::string sql((std::istreambuf_iterator<char>(in)), {});
  CHECK(!sql.empty());
  const internal::Database db =
      internal::open_database(kFile, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs.name())
          .value();
  CHECK(internal::execute(
            db.get(),
            "PRAGMA locking_mode=EXCLUSIVE;PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;" + sql)
            .ok());
  return fs;
}

std::string shown(Store& store) {
  std::string text = std::to_string(store.revision()) + " from " + std::to_string(store.oldest());
  for (const Entry& entry : store.list({}).value().entries)
    text += "; " + entry.key + " " + std::to_string(entry.created) + " " +
            std::to_string(entry.modified) + " " + *entry.value;
  for (const Event& event : store.watch("", store.oldest()).value()->poll(1'000'000).value())
    text += "; " + std::to_string(event.entry.modified) + " " + event.entry.key + " " +
            *event.entry.value;
  return text;
}

Result<std::unique_ptr<Store>> open_on(CrashingFileSystem& fs, const SqliteVfs& vfs) {
  internal::SqliteOptions sqlite;
  sqlite.fs = &fs;
  sqlite.vfs = vfs.name();
  TRY(internal::OpenedJournal opened, internal::open_sqlite_journal(kFile, sqlite));
  return internal::make_store({}, std::move(opened.journal), std::move(opened.loaded));
}

TEST(StoreUpgrade, FullDiskLeavesTheOldFormatAndNamesTheNeededSpace) {
  std::string wanted;
  std::uint64_t refused = 0;
  log::configure(log::Format::kText, log::Level::kWarn);  // each upgrade logs a line
  for (std::uint64_t room = 4096;; room += 2048) {        // WAL mode needs space
    const auto fs = disk_of_first_format();
    const SqliteVfs vfs(*fs);
    fs->set_capacity(fs->used_bytes() + room);
    auto store = open_on(*fs, vfs);
    if (store.ok()) {
      wanted = shown(**store);
      break;
    }
    ++refused;
    ASSERT_EQ(store.error().code(), Code::kExhausted) << room << ": " << store.error();
    EXPECT_NE(store.error().message().find(
                  "it needs free space for a second file in /data; nothing has changed"),
              std::string::npos)
        << room << ": " << store.error();
    EXPECT_FALSE(fs->stat("/data/store.db.upgrade").value().has_value()) << room;
    EXPECT_FALSE(fs->stat("/data/store.db.format-1").value().has_value()) << room;
    fs->set_capacity(1 << 30);
    auto again = open_on(*fs, vfs);
    ASSERT_TRUE(again.ok()) << room << ": " << again.error();
    if (wanted.empty()) wanted = shown(**again);
    EXPECT_EQ(shown(**again), wanted) << room;
  }
  log::configure(log::Format::kText, log::Level::kInfo);
  EXPECT_GT(refused, 4u);
  EXPECT_NE(wanted.find("; "), std::string::npos);
}

TEST(StoreCrash, UpgradeIsCompleteOrAbsentAfterACrash) {
  std::string wanted;
  {
    const auto fs = disk_of_first_format();
    const SqliteVfs vfs(*fs);
    auto store = open_on(*fs, vfs);
    ASSERT_TRUE(store.ok()) << store.error();
    wanted = shown(**store);
    ASSERT_NE(wanted.find("; "), std::string::npos);
  }
  log::configure(log::Format::kText, log::Level::kWarn);  // each upgrade logs a line
  CrashCampaign campaign("store_test --gtest_filter='StoreCrash.Upgrade*'", 300);
  while (campaign.next_seed()) {
    const SqliteRandomness same(static_cast<int>(campaign.seed()));
    const auto fs = disk_of_first_format();
    const SqliteVfs vfs(*fs);
    fs->on_call([&](std::string_view, const os::Path&) {
      campaign.point(*fs, 0, [&](CrashingFileSystem& left, Rng& rng) -> std::string {
        const SavedSqliteRandomness saved_randomness;
        const SqliteVfs left_vfs(left);
        auto store = open_on(left, left_vfs);
        if (!store.ok()) return store.error().message();
        if (const std::string found = shown(**store); found != wanted)
          return "found " + found + ", wanted " + wanted;
        const auto second = left.crashed(rng.next());
        campaign.count_nested();
        const SqliteVfs second_vfs(*second);
        auto again = open_on(*second, second_vfs);
        if (!again.ok()) return "second crash: " + again.error().message();
        return shown(**again) == wanted ? "" : "second crash: found " + shown(**again);
      });
      return Status();
    });
    auto store = open_on(*fs, vfs);
    ASSERT_TRUE(store.ok()) << store.error();
    store->reset();
    fs->on_call({});
  }
  log::configure(log::Format::kText, log::Level::kInfo);
  EXPECT_EQ(campaign.failure(), "");
}

}  // namespace crash_test
}  // namespace varda::store
