// SQLite over an os::FileSystem, so that the store's real code runs on a disk that crashes and fails.
//
// Only for tests. On the machine the store uses SQLite's own unix VFS, which has run on more disks than ours ever will; this one
// does what that one does, call for call, where it matters for durability: it syncs a new log's directory at the log's first sync
// (and, as that one, does not look whether that worked), tells a sector of 4 KiB and SQLITE_IOCAP_POWERSAFE_OVERWRITE (a write
// damages no byte beside it), and reports a failed sync as SQLITE_IOERR_FSYNC whatever the reason. Files are locked exclusively, so
// there is no shared memory.
#pragma once

#include <memory>
#include <string>

#include "os/file_system.h"

namespace varda::store::testing {

/// Registered with SQLite as long as it lives; no file may be open any more when it ends. Time stands still and randomness is
/// seeded.
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

/// SQLite draws the salts of its log from a generator of the process: seeded, so that a run is the same twice.
class SqliteRandomness {
 public:
  explicit SqliteRandomness(int seed);
};

/// What happens inside uses the same numbers as if it had not happened.
class SqliteRandomnessKept {
 public:
  SqliteRandomnessKept();
  ~SqliteRandomnessKept();
};

}  // namespace varda::store::testing
