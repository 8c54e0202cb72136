// The format of a store's file: schema of new files, check of existing files, upgrade of old
// formats.
//
// PRAGMA application_id marks our files; PRAGMA user_version is the format. From format 2 on, the
// table `about` names the writing version and the version needed for reading. Future formats keep
// that table, so that an older program can name the version it needs.
#pragma once

#include <filesystem>
#include <string>

#include "os/file_system.h"
#include "store/internal/journal.h"
#include "store/internal/sqlite.h"

namespace varda::store::internal {

inline constexpr int kFormat = 2;

/// The format of an open file; 0: empty. kCorrupt: a file of another program. kUnsupported: newer
/// than kFormat; the message names the needed version.
Result<int> check_format(sqlite3* db);

/// Creates the tables of an empty file. The connection must not be in WAL mode yet.
Status create_schema(sqlite3* db);

/// Upgrades a file to kFormat. `db` is the file's only connection and is closed; no other process
/// may open the file meanwhile. The new file is written beside the old one and renamed over it. A
/// reader finds one of the two complete, also after a crash. The old file stays as FILE.format-N.
/// kExhausted: no room for a second file; nothing has changed.
Status upgrade_file(os::FileSystem& fs, const std::filesystem::path& file, Database db,
                    const SqliteOptions& sqlite);

/// The current values, by key. All formats so far store them alike.
Result<std::vector<Entry>> read_entries(sqlite3* db);

/// Removes files beside `file` that a killed upgrade left.
Status clear_upgrade(os::FileSystem& fs, const std::filesystem::path& file);

}  // namespace varda::store::internal
