// The store's file: SQLite in WAL mode, synced at every commit.
//
//   objects  the current values
//   events   the history; a row holds the value *before* the event. The new value is in the next
//            row of the key, or in objects
//   meta     revision, and the revision up to which history is dropped
#include <algorithm>
#include <map>
#include <utility>

#include "os/file_system.h"
#include "store/internal/format.h"
#include "store/internal/journal.h"
#include "store/internal/settle.h"
#include "store/internal/sqlite.h"
#include "store/room.h"

namespace varda::store::internal {
namespace {

// Deletes dropped history in groups, so that most commits delete nothing.
constexpr Revision kTrimEvery = 256;
// Limit of history on disk while the reserve is spent. Otherwise frequent updates (heartbeats of
// nodes) use up the space for deletions within an hour. The log is small too, since its pages also
// need space in the file.
constexpr std::size_t kScarceHistoryBytes = 512 << 10, kEventBytes = 4096;
constexpr int kScarceLogPages = 256, kLogPages = 1000;
// Up to 4 MiB stay free in the file; beyond that, 1 MiB at a time returns to the disk.
constexpr std::int64_t kFreePagesMin = 1024, kFreePagesPerStep = 256;

// Disk space reserved for writes that free space. Without it, nothing could be deleted on a full
// disk.
class Reserve {
 public:
  Reserve(os::FileSystem& fs, std::filesystem::path path) : fs_(fs), path_(std::move(path)) {
    restore();
  }
  /// False: already released.
  bool release() {
    if (!std::exchange(reserved_, false)) return false;
    spent_ = true;
    return fs_.remove(path_).ok();
  }
  /// True if the reserve was released and not restored, or never had space.
  bool spent() const { return spent_; }
  /// Called periodically; recreates a missing reserve when the disk has space again.
  void restore() {
    if (reserved_) return;
    if (const auto info = fs_.stat(path_); info.ok() && *info && (*info)->size_bytes == kBytes) {
      reserved_ = true;
      return;
    }
    const auto space = fs_.space(path_.parent_path());
    if (!space.ok()) return;
    if (space->available_bytes < 2 * kBytes) {
      spent_ = true;  // spent by an earlier process, or never had space
      return;
    }
    reserved_ = fs_.allocate(path_, kBytes).ok();
    if (reserved_) spent_ = false;
  }
  static constexpr std::uint64_t kBytes = kReserveBytes;
  Error full() const { return disk_is_full(fs_, path_); }

 private:
  os::FileSystem& fs_;
  const std::filesystem::path path_;
  bool reserved_ = false;
  bool spent_ = false;
};

bool frees_room(const EventPtr& event) {
  if (event->type == EventType::kDelete) return true;
  // A small growth counts too: many removals first write a deletion mark.
  constexpr std::size_t kMarkBytes = 512;
  return event->previous != nullptr &&
         event->entry.value->size() <= event->previous->size() + kMarkBytes;
}

class SqliteJournal final : public Journal {
 public:
  /// Holds `lock` as long as the file is open.
  static Result<std::unique_ptr<SqliteJournal>> create(std::unique_ptr<os::FileLock> lock,
                                                       Database db, Revision compacted,
                                                       Reserve reserve, std::int64_t pages_max) {
    sqlite3* raw = db.get();
    TRY(Statement put,
        Statement::prepare(
            raw,
            "INSERT INTO objects VALUES(?1,?2,?3,?4) ON CONFLICT(key) DO UPDATE SET "
            "value=excluded.value, created=excluded.created, modified=excluded.modified"));
    TRY(Statement remove, Statement::prepare(raw, "DELETE FROM objects WHERE key=?1"));
    TRY(Statement event,
        Statement::prepare(
            raw,
            "INSERT INTO events(revision,type,key,created,previous,previous_modified) "
            "VALUES(?1,?2,?3,?4,?5,?6)"));
    TRY(Statement revision,
        Statement::prepare(raw, "UPDATE meta SET value=?1 WHERE name='revision'"));
    TRY(Statement compact,
        Statement::prepare(raw, "UPDATE meta SET value=?1 WHERE name='compacted'"));
    TRY(Statement forget, Statement::prepare(raw, "DELETE FROM events WHERE revision<=?1"));
    TRY(Statement begin, Statement::prepare(raw, "BEGIN IMMEDIATE"));
    TRY(Statement commit, Statement::prepare(raw, "COMMIT"));
    Statements statements{std::move(put),      std::move(remove),  std::move(event),
                          std::move(revision), std::move(compact), std::move(forget),
                          std::move(begin),    std::move(commit)};
    return std::unique_ptr<SqliteJournal>(
        std::make_unique<SqliteJournal>(std::move(lock), std::move(db), std::move(statements),
                                        compacted, std::move(reserve), pages_max));
  }

  struct Statements {
    Statement put, remove, event, revision, compact, forget, begin, commit;
  };
  SqliteJournal(std::unique_ptr<os::FileLock> lock, Database db, Statements statements,
                Revision compacted, Reserve reserve, std::int64_t pages_max)
      : lock_(std::move(lock)),
        db_(std::move(db)),
        sql_(std::move(statements)),
        trimmed_(compacted),
        reserve_(std::move(reserve)),
        pages_max_(pages_max),
        pages_of_log_(read_number(db_.get(), "PRAGMA wal_autocheckpoint").value_or(kLogPages)) {}

  Status write(const std::vector<EventPtr>& events, Revision oldest) override {
    const bool trims = oldest - trimmed_ >= kTrimEvery;
    const auto body = [&]() -> Status {
      for (const EventPtr& event : events) TRY_VOID(write(*event));
      TRY_VOID(sql_.revision.bind(events.back()->entry.modified).run());
      return trims ? forget(oldest) : Status();
    };
    const bool frees = std::all_of(events.begin(), events.end(), frees_room);
    if (!frees && reserve_.spent() && !room_again(events))
      return explain(Error(Code::kExhausted, "only deletions are accepted"));
    spare(events);
    Status done = transaction(body);
    if (!done.ok() && done.error().code() == Code::kExhausted && frees && release())
      done = transaction(body);
    TRY_VOID(explain(std::move(done)));
    if (trims) {
      trimmed_ = oldest;
      shrink_file();
      reserve_.restore();
    }
    return {};
  }

  Status compact(Revision revision) override {
    if (revision <= trimmed_) return {};
    Status done = transaction([&] { return forget(revision); });
    if (!done.ok() && done.error().code() == Code::kExhausted && release())
      done = transaction([&] { return forget(revision); });
    TRY_VOID(explain(std::move(done)));
    trimmed_ = revision;
    shrink_file();
    return {};
  }

 private:
  Status write(const Event& event) {
    const Entry& entry = event.entry;
    if (event.type == EventType::kPut) {
      TRY_VOID(sql_.put.bind(entry.key)
                   .bind(*entry.value)
                   .bind(entry.created)
                   .bind(entry.modified)
                   .run());
    } else {
      TRY_VOID(sql_.remove.bind(entry.key).run());
    }
    sql_.event.bind(entry.modified)
        .bind(static_cast<std::int64_t>(event.type))
        .bind(entry.key)
        .bind(entry.created);
    event.previous ? sql_.event.bind(*event.previous) : sql_.event.bind_null();
    return sql_.event.bind(event.previous_modified).run();
  }

  Status forget(Revision revision) {
    TRY_VOID(sql_.compact.bind(revision).run());
    return sql_.forget.bind(revision).run();
  }

  // While the reserve is spent, drops history on disk early. History in memory stays, for current
  // watches.
  void spare(const std::vector<EventPtr>& events) {
    if (!reserve_.spent()) {
      if (std::exchange(scarce_, false)) (void)limit_log(pages_of_log_);
      return;
    }
    if (!std::exchange(scarce_, true)) {
      history_bytes_ = 0;
      (void)limit_log(kScarceLogPages);
    }
    if (history_bytes_ >= kScarceHistoryBytes) {
      reserve_.restore();
      const Revision before = events.front()->entry.modified - 1;
      if (reserve_.spent() && before > trimmed_ &&
          transaction([&] { return forget(before); }).ok()) {
        trimmed_ = before;
        history_bytes_ = 0;
        (void)execute(db_.get(), "PRAGMA wal_checkpoint(PASSIVE)");
      }
    }
    for (const EventPtr& event : events)
      history_bytes_ += kEventBytes + (event->previous ? event->previous->size() : 0);
  }

  Status limit_log(std::int64_t pages) {
    return execute(db_.get(), "PRAGMA wal_autocheckpoint=" + std::to_string(pages));
  }

  // True if the disk has space again, so that the reserve returns. Also true if the file has more
  // free pages than deletions need.
  bool room_again(const std::vector<EventPtr>& events) {
    reserve_.restore();
    if (!reserve_.spent()) return true;
    std::size_t bytes = kScarceHistoryBytes + (64 << 10);
    for (const EventPtr& event : events)
      bytes += 2 * (event->entry.key.size() + event->entry.value->size()) +
               (event->previous ? event->previous->size() : 0);
    const auto free = read_number(db_.get(), "PRAGMA freelist_count");
    return free.ok() && static_cast<std::size_t>(*free) * 4096 >= bytes;
  }

  // Adds the full disk and a remedy, because the reader of this message may not know either.
  Status explain(Status status) const {
    if (status.ok() || status.error().code() != Code::kExhausted) return status;
    return Error(
        Code::kExhausted,
        reserve_.full().message() + ": free some room there, or delete objects, which still works");
  }

  // Shrinks the file step by step when much of it is free, for the benefit of other files. Keeps
  // some free pages for later writes.
  void shrink_file() {
    const auto free = read_number(db_.get(), "PRAGMA freelist_count"),
               all = read_number(db_.get(), "PRAGMA page_count");
    if (!free.ok() || !all.ok() || *free < kFreePagesMin || *free < *all / 4) return;
    // May fail on a full disk; the pages are then reused. A checkpoint truncates the file.
    (void)execute(db_.get(), "PRAGMA incremental_vacuum(" + std::to_string(kFreePagesPerStep) +
                                 ");PRAGMA wal_checkpoint(PASSIVE)");
  }

  bool release() {
    if (!reserve_.release()) return false;
    if (pages_max_ > 0)
      (void)execute(
          db_.get(),
          "PRAGMA max_page_count=" +
              std::to_string(pages_max_ + static_cast<std::int64_t>(Reserve::kBytes / 4096)));
    return true;
  }

  template <typename Body>
  Status transaction(Body body) {
    if (failed_) {
      return Error(Code::kUnavailable,
                   "writes are refused because the disk failed and its content is unknown: check "
                   "the disk and restart the process (" +
                       failed_->message() + ")");
    }
    TRY_VOID(sql_.begin.run());
    Status status = body();
    if (status.ok()) {
      status = sql_.commit.run();
      // After a failed sync, the content of the disk is unknown until the file is read again.
      if (!status.ok() && status.error().code() == Code::kInternal) failed_ = status.error();
    }
    if (!status.ok() && sqlite3_get_autocommit(db_.get()) == 0)
      (void)execute(db_.get(), "ROLLBACK");
    return status;
  }

  const std::unique_ptr<os::FileLock> lock_;
  const Database db_;  // outlives the statements
  Statements sql_;
  Revision trimmed_;
  Reserve reserve_;
  const std::int64_t pages_max_;
  const std::int64_t pages_of_log_;
  bool scarce_ = false;            // the reserve was spent at the last write
  std::size_t history_bytes_ = 0;  // written since then, or since history was last dropped
  std::optional<Error> failed_;
};

}  // namespace

Result<std::vector<Entry>> read_entries(sqlite3* db) {
  std::vector<Entry> entries;
  TRY(Statement rows,
      Statement::prepare(db, "SELECT key,value,created,modified FROM objects ORDER BY key"));
  for (;;) {
    TRY(const bool row, rows.next());
    if (!row) return entries;
    entries.push_back({.key = rows.bytes(0),
                       .value = std::make_shared<const Value>(rows.bytes(1)),
                       .created = rows.integer(2),
                       .modified = rows.integer(3)});
  }
}

namespace {

// Reads from the newest event back. At each step, `values` holds every key's value after the event.
Result<std::vector<EventPtr>> load_events(sqlite3* db, const std::vector<Entry>& entries,
                                          Revision compacted) {
  std::map<std::string, std::shared_ptr<const Value>, std::less<>> values;
  for (const Entry& entry : entries) values[entry.key] = entry.value;
  std::vector<EventPtr> events;
  TRY(Statement rows,
      Statement::prepare(db,
                         "SELECT revision,type,key,created,previous,previous_modified FROM events "
                         "WHERE revision>?1 ORDER BY id DESC"));
  rows.bind(compacted);
  for (;;) {
    TRY(const bool row, rows.next());
    if (!row) break;
    Event event;
    event.type = rows.integer(1) == static_cast<std::int64_t>(EventType::kDelete)
                     ? EventType::kDelete
                     : EventType::kPut;
    event.entry.key = rows.bytes(2);
    event.entry.created = rows.integer(3);
    event.entry.modified = rows.integer(0);
    if (!rows.null(4)) event.previous = std::make_shared<const Value>(rows.bytes(4));
    event.previous_modified = rows.integer(5);
    auto& value = values[event.entry.key];
    event.entry.value = event.type == EventType::kDelete ? event.previous : value;
    value = event.previous;
    if (event.entry.value == nullptr)
      return Error(Code::kCorrupt, "an event of " + event.entry.key + " has no value");
    events.push_back(std::make_shared<const Event>(std::move(event)));
  }
  std::reverse(events.begin(), events.end());
  return events;
}

// SQLite checks pages, not numbers. A flipped bit on disk must not make revisions decrease.
Status check_loaded(const Loaded& loaded) {
  const auto bad = [](const std::string& what) {
    return Error(Code::kCorrupt, "damaged: " + what);
  };
  if (loaded.compacted < 0 || loaded.compacted > loaded.revision)
    return bad("compacted revision " + std::to_string(loaded.compacted) + " of " +
               std::to_string(loaded.revision));
  for (const Entry& entry : loaded.entries) {
    if (entry.key.empty() || entry.created < 1 || entry.modified < entry.created ||
        entry.modified > loaded.revision)
      return bad("the revision of " + entry.key);
  }
  Revision last = loaded.compacted;
  for (const EventPtr& event : loaded.events) {
    const Entry& entry = event->entry;
    const bool ordered = entry.modified >= last && entry.modified > event->previous_modified &&
                         event->previous_modified >= 0;
    if (!ordered || entry.modified > loaded.revision || entry.created < 1 ||
        entry.created > entry.modified)
      return bad("the history of " + entry.key);
    last = entry.modified;
  }
  return {};
}

// Values may be secrets. SQLite creates files according to the umask, and the log with the mode of
// the database.
Status make_private(os::FileSystem& fs, const std::filesystem::path& file) {
  constexpr std::uint32_t kMode = 0600;
  TRY(const auto existing, fs.stat(file));
  if (!existing) {
    TRY([[maybe_unused]] const auto made, fs.open(file, os::Open::kExclusive, kMode));
  }
  for (const std::string suffix : {"", "-wal"}) {
    std::filesystem::path path = file;
    path += suffix;
    TRY(const auto info, fs.stat(path));
    if (info && info->kind == os::FileKind::kFile && (info->mode & 077) != 0)
      TRY_VOID(fs.set_mode(path, kMode));
  }
  return {};
}

// Opens the file in the current format, in WAL mode.
Result<Database> open_current(const std::filesystem::path& file, const SqliteOptions& sqlite) {
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  // Exclusive locking keeps the WAL index in memory: no -shm file, and no other process has access.
  constexpr const char* kExclusive = "PRAGMA locking_mode=EXCLUSIVE";
  TRY(Database db, open_database(file, kFlags, sqlite.vfs));
  TRY_VOID(execute(db.get(), kExclusive));
  TRY(const int format, check_format(db.get()));
  if (format == 0) TRY_VOID(create_schema(db.get()));
  if (format != 0 && format < kFormat) {
    TRY_VOID(upgrade_file(sqlite.disk(), file, std::move(db), sqlite));
    TRY(db, open_database(file, kFlags, sqlite.vfs));
    TRY_VOID(execute(db.get(), kExclusive));
  }
  if (sqlite.checkpoint_pages > 0)
    TRY_VOID(
        execute(db.get(), "PRAGMA wal_autocheckpoint=" + std::to_string(sqlite.checkpoint_pages)));
  TRY_VOID(
      execute(db.get(),
              "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;PRAGMA journal_size_limit=16777216;"
              "PRAGMA cache_size=-2048;PRAGMA temp_store=MEMORY"));
  return db;
}

Result<OpenedJournal> open(const std::filesystem::path& file, const SqliteOptions& sqlite) {
  std::filesystem::path lock_path = file;
  lock_path += ".lock";
  std::unique_ptr<os::FileLock> lock;
  if (sqlite.fs == nullptr) {
    TRY(lock, os::FileLock::acquire(lock_path));
  }
  TRY_VOID(make_private(sqlite.disk(), file));
  TRY_VOID(clear_upgrade(sqlite.disk(), file));
  TRY_VOID(settle_log(sqlite.disk(), file));
  TRY(Database db, open_current(file, sqlite));
  // The log exists now. SQLite syncs the directory too, but ignores errors; a log without a durable
  // name loses all commits.
  TRY_VOID(sync_name(sqlite.disk(), file));
  sqlite3* raw = db.get();
  if (sqlite.pages_max > 0)
    TRY_VOID(execute(raw, "PRAGMA max_page_count=" + std::to_string(sqlite.pages_max)));
  OpenedJournal opened;
  TRY(opened.loaded.revision, read_number(raw, "SELECT value FROM meta WHERE name='revision'"));
  TRY(opened.loaded.compacted, read_number(raw, "SELECT value FROM meta WHERE name='compacted'"));
  TRY(opened.loaded.entries, read_entries(raw));
  TRY(opened.loaded.events, load_events(raw, opened.loaded.entries, opened.loaded.compacted));
  TRY_VOID(check_loaded(opened.loaded));
  TRY(opened.journal,
      SqliteJournal::create(std::move(lock), std::move(db), opened.loaded.compacted,
                            Reserve(sqlite.disk(), file.string() + ".reserve"), sqlite.pages_max));
  return opened;
}

}  // namespace

Result<OpenedJournal> open_sqlite_journal(const std::filesystem::path& file,
                                          const SqliteOptions& sqlite) {
  return open(file, sqlite).context(file.string());
}

}  // namespace varda::store::internal
