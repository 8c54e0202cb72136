// SQLite over an os::FileSystem, so that the store's real code runs on a disk that crashes and
// fails.
//
// For tests only. Production uses SQLite's own unix VFS. This one makes the same calls where
// durability depends on them:
//  - It syncs the directory of a new log at the log's first sync, ignoring errors.
//  - It reports 4 KiB sectors and SQLITE_IOCAP_POWERSAFE_OVERWRITE: writes damage no byte beside.
//  - It reports a failed sync as SQLITE_IOERR_FSYNC, whatever the reason.
// Files are locked exclusively, so there is no shared memory.
#pragma once

#include <memory>
#include <string>

#include "os/file_system.h"

namespace varda::store::testing {

/// Registered with SQLite during its lifetime; all files must be closed before its end. Time stands
/// still and randomness is seeded.
class SqliteVfs {
 public:
  /// `fs` outlives it.
  explicit SqliteVfs(os::FileSystem& fs);
  ~SqliteVfs();
  const char* name() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Seeds the process-wide generator that SQLite uses for the salts of its log, so that runs are
/// repeatable.
class SqliteRandomness {
 public:
  explicit SqliteRandomness(int seed);
};

/// Restores the generator at its end, so that the code inside does not change later numbers.
class SavedSqliteRandomness {
 public:
  SavedSqliteRandomness();
  ~SavedSqliteRandomness();
};

}  // namespace varda::store::testing
