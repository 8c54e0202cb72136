#include "store/internal/format.h"

#include <array>

#include "base/log.h"
#include "base/rng.h"

namespace varda::store::internal {
namespace {

constexpr int kApplicationId = 0x56726461;  // "Vrda"
constexpr int kFirstFormat = 1;

constexpr const char* kTables = R"sql(
  CREATE TABLE objects(key BLOB PRIMARY KEY, value BLOB NOT NULL, created INTEGER NOT NULL, modified INTEGER NOT NULL);
  CREATE TABLE events(id INTEGER PRIMARY KEY, revision INTEGER NOT NULL, type INTEGER NOT NULL, key BLOB NOT NULL,
                      created INTEGER NOT NULL, previous BLOB, previous_modified INTEGER NOT NULL);
  CREATE INDEX events_revision ON events(revision);
  CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL);
  INSERT INTO meta VALUES('revision', 0), ('compacted', 0);
)sql";

constexpr const char* kAbout = "CREATE TABLE about(name TEXT PRIMARY KEY, value TEXT NOT NULL);";

// The oldest version that reads kFormat. A new format names the version that introduces it.
constexpr const char* kNeeds = "0.1.0";

/// Step I upgrades format I + 1 to I + 2, in the upgrade's transaction.
constexpr std::array<const char*, kFormat - kFirstFormat> kSteps = {
    kAbout,  // 2: adds `about`; enables auto_vacuum, which every rewritten file gets
};

// A random identifier of this store, for logs and backups.
std::string draw_id() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  for (int i = 0; i < 2; ++i) {
    std::uint64_t bits = system_rng().next();
    for (int j = 0; j < 16; ++j, bits >>= 4) id += kDigits[bits & 15];
  }
  return id;
}

std::string about_rows() {
  return "INSERT OR REPLACE INTO about VALUES('needs','" + std::string(kNeeds) +
         "'),('written_by','" VARDA_VERSION "');INSERT OR IGNORE INTO about VALUES('id','" +
         draw_id() + "');";
}

std::string stamp() {
  return "PRAGMA application_id=" + std::to_string(kApplicationId) +
         ";PRAGMA user_version=" + std::to_string(kFormat) + ";";
}

std::filesystem::path with(std::filesystem::path file, const std::string& suffix) {
  return file += suffix;
}

std::filesystem::path scratch_of(const std::filesystem::path& file) {
  return with(file, ".upgrade");
}

void notify(const SqliteOptions& sqlite, std::string_view point) {
  if (sqlite.at) sqlite.at(point);
}

// Writes the upgraded file: compact, all steps done, without a log.
Status make_upgraded(os::FileSystem& fs, const std::filesystem::path& scratch, sqlite3* old,
                     int format, const SqliteOptions& sqlite) {
  { TRY([[maybe_unused]] const auto made, fs.open(scratch, os::Open::kExclusive, 0600)); }
  TRY_VOID(execute(old, "PRAGMA auto_vacuum=INCREMENTAL"));  // for the copy
  TRY(Statement copy, Statement::prepare(old, "VACUUM INTO ?1"));
  TRY_VOID(copy.bind_text(scratch.native()).run());
  notify(sqlite, "copied");
  {
    TRY(const Database db, open_database(scratch, SQLITE_OPEN_READWRITE, sqlite.vfs));
    std::string steps = "BEGIN IMMEDIATE;";
    for (int at = format; at < kFormat; ++at)
      steps += kSteps[static_cast<std::size_t>(at - kFirstFormat)];
    TRY_VOID(execute(db.get(), "PRAGMA synchronous=FULL"));
    TRY_VOID(execute(db.get(), steps + about_rows() + stamp() + "COMMIT"));
  }
  notify(sqlite, "changed");
  TRY(const auto file, fs.open(scratch, os::Open::kCreate));
  return file->sync();
}

}  // namespace

Result<int> check_format(sqlite3* db) {
  TRY(const std::int64_t id, read_number(db, "PRAGMA application_id"));
  TRY(const std::int64_t format, read_number(db, "PRAGMA user_version"));
  TRY(const std::int64_t tables, read_number(db, "SELECT count(*) FROM sqlite_master"));
  if (id == 0 && format == 0 && tables == 0) return 0;
  if (id != kApplicationId) return Error(Code::kCorrupt, "a SQLite file of another program");
  if (format < kFirstFormat)
    return Error(Code::kCorrupt, "format " + std::to_string(format) + ", which does not exist");
  if (format <= kFormat) return static_cast<int>(format);
  const auto needs = read_text(db, "SELECT value FROM about WHERE name='needs'");
  return Error(Code::kUnsupported,
               "format " + std::to_string(format) +
                   " was written by a newer version; this is varda " VARDA_VERSION
                   ", which reads up to format " +
                   std::to_string(kFormat) +
                   (needs.ok() && !needs->empty() ? ": use varda " + *needs + " or newer" : ""));
}

Status create_schema(sqlite3* db) {
  TRY_VOID(execute(db, "PRAGMA auto_vacuum=INCREMENTAL"));
  return execute(
      db, "BEGIN IMMEDIATE;" + std::string(kTables) + kAbout + about_rows() + stamp() + "COMMIT");
}

Status clear_upgrade(os::FileSystem& fs, const std::filesystem::path& file) {
  for (const char* suffix : {"", "-journal", "-wal", "-shm"})
    TRY_VOID(fs.remove(with(scratch_of(file), suffix)));
  return {};
}

Status upgrade_file(os::FileSystem& fs, const std::filesystem::path& file, Database db,
                    const SqliteOptions& sqlite) {
  TRY(const int format, check_format(db.get()));
  const std::filesystem::path scratch = scratch_of(file),
                              backup = with(file, ".format-" + std::to_string(format));
  // Moves the log into the file: the old file must be complete without its log, and no log may lie
  // beside the new one.
  Status made = execute(db.get(), "PRAGMA journal_mode=DELETE");
  if (made.ok()) made = make_upgraded(fs, scratch, db.get(), format, sqlite);
  if (!made.ok()) {
    (void)clear_upgrade(fs, file);
    const std::string what = "upgrade from format " + std::to_string(format) + " to " +
                             std::to_string(kFormat) + " failed";
    if (made.error().code() != Code::kExhausted) return std::move(made).context(what);
    return std::move(made).context(what + "; it needs free space for a second file in " +
                                   file.parent_path().string() + "; nothing has changed");
  }
  db.reset();
  notify(sqlite, "closed");
  TRY_VOID(fs.remove(backup));
  TRY_VOID(fs.link(file, backup));
  notify(sqlite, "kept");
  TRY_VOID(fs.rename(scratch, file));
  notify(sqlite, "renamed");
  TRY_VOID(fs.sync_directory(file.parent_path().empty() ? std::filesystem::path(".")
                                                        : file.parent_path()));
  log::info(
      "store upgraded to a new format, old file kept",
      {{"file", file.string()}, {"from", format}, {"to", kFormat}, {"kept", backup.string()}});
  return {};
}

}  // namespace varda::store::internal
