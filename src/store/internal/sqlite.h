// Owners and errors around SQLite's C interface; for this room only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <sqlite3.h>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::store::internal {

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;

/// Maps an SQLite code to an Error. `db` may be null.
Error sqlite_error(sqlite3* db, int code, std::string_view what);

/// A prepared statement, bound from left to right. Not thread-safe; does not outlive its database.
class Statement {
 public:
  static Result<Statement> prepare(sqlite3* db, const char* sql);
  Statement(Statement&&) = default;

  Statement& bind(std::int64_t value);
  /// The bytes stay valid until the next run().
  Statement& bind(std::string_view bytes);
  Statement& bind_text(std::string_view text);
  Statement& bind_null();
  /// Executes to the end; expects no rows.
  Status run();
  /// True: a row is available.
  Result<bool> next();
  std::int64_t integer(int column) const { return sqlite3_column_int64(raw_.get(), column); }
  std::string bytes(int column) const;
  bool null(int column) const { return sqlite3_column_type(raw_.get(), column) == SQLITE_NULL; }

 private:
  Statement(sqlite3* db, sqlite3_stmt* raw) : db_(db), raw_(raw) {}
  sqlite3* db_;
  std::unique_ptr<sqlite3_stmt, FinalizeStatement> raw_;
  int bound_ = 0;
};

/// `flags` are SQLITE_OPEN_*. `vfs` null: the machine's files. One thread at a time.
Result<Database> open_database(const std::filesystem::path& file, int flags,
                               const char* vfs = nullptr);
/// Executes statements separated by ';', ignoring rows.
Status execute(sqlite3* db, const std::string& sql);
/// The first column of the first row; 0 without rows.
Result<std::int64_t> read_number(sqlite3* db, const char* sql);
/// The same as text; "" without rows.
Result<std::string> read_text(sqlite3* db, const char* sql);

}  // namespace varda::store::internal
