// The format of a store's file: what a new file gets, which files are refused, and how older ones become new ones.
//
// PRAGMA application_id says that a file is ours, PRAGMA user_version its format. From format 2 on the table `about` says in words
// who wrote it and which program is needed to read it; every format to come keeps that table, so that a program can say what it
// lacks.
#pragma once

#include <filesystem>
#include <string>

#include "os/file_system.h"
#include "store/internal/journal.h"
#include "store/internal/sqlite.h"

namespace varda::store::internal {

inline constexpr int kFormat = 2;

/// The format of an open file; 0: there is nothing in it yet. kCorrupt: a file of another program. kUnsupported: newer than
/// kFormat; the message names the program that is needed.
Result<int> check_format(sqlite3* db);

/// What an empty file becomes. Its connection must not be in WAL mode yet.
Status create_schema(sqlite3* db);

/// Brings a file of an older format to kFormat. `db` is its only connection and is closed; nobody else may open the file meanwhile.
/// The new file is made beside the old one and renamed over it, so that a reader finds the one or the other whole, also after a
/// crash; the old one stays as FILE.format-N. kExhausted: no room for a second file; nothing has changed.
Status upgrade_file(os::FileSystem& fs, const std::filesystem::path& file, Database db, const SqliteOptions& sqlite);

/// The current values, by key: the same in every format so far.
Result<std::vector<Entry>> read_entries(sqlite3* db);

/// Clears what an upgrade that was killed left beside `file`.
Status clear_upgrade(os::FileSystem& fs, const std::filesystem::path& file);

}  // namespace varda::store::internal
