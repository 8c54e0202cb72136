// What a process that was killed, or whose sync failed, may have left in the machine's memory only.
#pragma once

#include <filesystem>

#include "os/file_system.h"

namespace varda::store::internal {

/// Makes the write-ahead log of a database durable as it reads now. To be called before the database is opened: SQLite takes what
/// it finds in the log for committed, and shows it to readers, without a sync of its own. A commit that was written and not synced
/// when the process was killed would be seen, and gone after a power cut; after a sync that failed even a later successful one does
/// not bring back what was lost. So the bytes are written again, as they are, and synced. Fine if there is no log.
Status settle_log(os::FileSystem& fs, const std::filesystem::path& database);

/// The names of the database and its log are durable on return.
Status sync_name(os::FileSystem& fs, const std::filesystem::path& database);

}  // namespace varda::store::internal
