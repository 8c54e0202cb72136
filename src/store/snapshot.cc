#include "store/snapshot.h"

#include <algorithm>

#include "os/file_system.h"
#include "store/internal/format.h"
#include "store/internal/journal.h"
#include "store/internal/sqlite.h"

namespace varda::store {

namespace {

using internal::Database;
using internal::execute;
using internal::Statement;

Result<Page> read(const std::filesystem::path& file) {
  TRY(const auto info, os::real_file_system().stat(file));
  if (!info) return Error(Code::kNotFound, "no such file");
  std::filesystem::path lock_file = file;
  lock_file += ".lock";
  TRY(const auto lock, os::FileLock::acquire(lock_file));
  TRY(const Database db, internal::open_database(file, SQLITE_OPEN_READWRITE));
  TRY_VOID(execute(db.get(), "PRAGMA locking_mode=EXCLUSIVE"));
  TRY(const int format, internal::check_format(db.get()));
  Page page;
  if (format == 0) return page;
  TRY(page.revision,
      internal::read_number(db.get(), "SELECT value FROM meta WHERE name='revision'"));
  TRY(page.entries, internal::read_entries(db.get()));
  return page;
}

class Writer final : public SqliteWriter {
 public:
  Writer(std::filesystem::path file, Database db, Statement insert)
      : file_(std::move(file)), db_(std::move(db)), insert_(std::move(insert)) {}
  ~Writer() override {
    if (finished_) return;
    insert_.reset();
    db_.reset();
    for (const char* suffix : {"", "-journal"})
      (void)os::real_file_system().remove(std::filesystem::path(file_) += suffix);
  }

  Status add(std::string_view key, std::string_view value) override {
    Status added = insert_->bind(key).bind(value).run();
    if (added.ok()) return added;
    const bool twice = sqlite3_errcode(db_.get()) == SQLITE_CONSTRAINT;
    return twice ? Status(Error(Code::kInvalid, std::string(key) + " occurs twice"))
                 : std::move(added).context(file_.string());
  }

  Status finish(Revision revision) override {
    const std::string number = std::to_string(revision);
    TRY_VOID(execute(db_.get(), "UPDATE objects SET created=" + number + ", modified=" + number +
                                    ";UPDATE meta SET value=" + number + ";COMMIT")
                 .context(file_.string()));
    insert_.reset();
    db_.reset();
    TRY(const auto made, os::real_file_system().open(file_, os::Open::kCreate));
    TRY_VOID(made->sync());
    finished_ = true;
    return {};
  }

 private:
  const std::filesystem::path file_;
  Database db_;  // outlives the statement
  std::optional<Statement> insert_;
  bool finished_ = false;
};

}  // namespace

Result<Page> read_sqlite(const std::filesystem::path& file) {
  return read(file).context(file.string());
}

Revision revision_after_restore(Revision backed_up, std::chrono::system_clock::time_point now) {
  constexpr Revision kAhead = 1'000'000'000;
  return std::max<Revision>(
      backed_up + kAhead,
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count());
}

Result<std::unique_ptr<SqliteWriter>> SqliteWriter::create(const std::filesystem::path& file) {
  {
    TRY([[maybe_unused]] const auto made,
        os::real_file_system().open(file, os::Open::kExclusive, 0600));
  }
  TRY(Database db, internal::open_database(file, SQLITE_OPEN_READWRITE));
  TRY_VOID(internal::create_schema(db.get()));
  TRY_VOID(execute(db.get(), "BEGIN IMMEDIATE"));
  TRY(Statement insert, Statement::prepare(db.get(), "INSERT INTO objects VALUES(?1,?2,0,0)"));
  return std::unique_ptr<SqliteWriter>(
      std::make_unique<Writer>(file, std::move(db), std::move(insert)));
}

}  // namespace varda::store
