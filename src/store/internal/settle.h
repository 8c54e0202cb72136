// Makes state durable that a killed process or a failed sync may have left in memory only.
#pragma once

#include <filesystem>

#include "os/file_system.h"

namespace varda::store::internal {

/// Makes the write-ahead log of a database durable as it now reads. Call this before opening the
/// database. SQLite treats everything in the log as committed and shows it to readers without a
/// sync. A killed process may have left an unsynced commit, which readers would see and a power cut
/// would lose. After a failed sync, even a later successful sync does not restore lost data.
/// Therefore the log's bytes are written again and synced. OK if there is no log.
Status settle_log(os::FileSystem& fs, const std::filesystem::path& database);

/// Syncs the directory, so that the names of the database and the log are durable.
Status sync_name(os::FileSystem& fs, const std::filesystem::path& database);

}  // namespace varda::store::internal
