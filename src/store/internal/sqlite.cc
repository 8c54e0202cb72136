#include "store/internal/sqlite.h"

#include <cerrno>

namespace varda::store::internal {
namespace {

// Quotas and process limits count as a full disk too. SQLite recognizes only ENOSPC and does not
// keep the reason of a failed commit; errno still has it. Only for writes: after a failed sync, the
// content of the disk is unknown.
bool is_full(sqlite3* db, int reason) {
  if (db == nullptr || sqlite3_extended_errcode(db) != SQLITE_IOERR_WRITE) return false;
  return reason == EDQUOT || reason == EFBIG || reason == ENOSPC;
}

}  // namespace

Error sqlite_error(sqlite3* db, int code, std::string_view what) {
  const int reason = errno;
  const std::string message =
      std::string(what) + ": " + (db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code));
  switch (code & 0xff) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG:
      return Error(Code::kExhausted, message);
    case SQLITE_ERROR:  // our SQL is valid, so something is missing in the file
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Error(Code::kCorrupt, message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Error(Code::kUnavailable, message);
    case SQLITE_CANTOPEN:
      return Error(Code::kNotFound, message);
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_READONLY:
      return Error(Code::kForbidden, message);
    case SQLITE_IOERR:
      if (is_full(db, reason)) return Error(Code::kExhausted, message + ", by a quota or limit");
      return Error(Code::kInternal, message);
    default:
      return Error(Code::kInternal, message);
  }
}

Result<Statement> Statement::prepare(sqlite3* db, const char* sql) {
  sqlite3_stmt* raw = nullptr;
  const int code = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
  Statement statement(db, raw);
  if (code != SQLITE_OK) return sqlite_error(db, code, sql);
  return statement;
}

Statement& Statement::bind(std::int64_t value) {
  sqlite3_bind_int64(raw_.get(), ++bound_, value);
  return *this;
}

Statement& Statement::bind(std::string_view bytes) {
  sqlite3_bind_blob64(raw_.get(), ++bound_, bytes.empty() ? "" : bytes.data(), bytes.size(),
                      SQLITE_STATIC);
  return *this;
}

Statement& Statement::bind_text(std::string_view text) {
  sqlite3_bind_text64(raw_.get(), ++bound_, text.empty() ? "" : text.data(), text.size(),
                      SQLITE_STATIC, SQLITE_UTF8);
  return *this;
}

Statement& Statement::bind_null() {
  sqlite3_bind_null(raw_.get(), ++bound_);
  return *this;
}

Status Statement::run() {
  const int code = sqlite3_step(raw_.get());
  Status status = code == SQLITE_DONE || code == SQLITE_ROW
                      ? Status()
                      : Status(sqlite_error(db_, code, "write"));
  sqlite3_reset(raw_.get());
  bound_ = 0;
  return status;
}

Result<bool> Statement::next() {
  const int code = sqlite3_step(raw_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return sqlite_error(db_, code, "read");
}

std::string Statement::bytes(int column) const {
  const void* data = sqlite3_column_blob(raw_.get(), column);
  return std::string(
      static_cast<const char*>(data),
      data == nullptr ? 0 : static_cast<std::size_t>(sqlite3_column_bytes(raw_.get(), column)));
}

Result<Database> open_database(const std::filesystem::path& file, int flags, const char* vfs) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(file.c_str(), &raw, flags | SQLITE_OPEN_NOMUTEX, vfs);
  Database db(raw);
  if (code != SQLITE_OK) return sqlite_error(raw, code, "open");
  return db;
}

Status execute(sqlite3* db, const std::string& sql) {
  const int code = sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return sqlite_error(db, code, sql.substr(0, sql.find_first_of("\n;")));
  return {};
}

Result<std::int64_t> read_number(sqlite3* db, const char* sql) {
  TRY(Statement statement, Statement::prepare(db, sql));
  TRY(const bool row, statement.next());
  return row ? statement.integer(0) : 0;
}

Result<std::string> read_text(sqlite3* db, const char* sql) {
  TRY(Statement statement, Statement::prepare(db, sql));
  TRY(const bool row, statement.next());
  return row ? statement.bytes(0) : std::string();
}

}  // namespace varda::store::internal
