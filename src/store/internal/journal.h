// Where committed events become durable.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "os/file_system.h"
#include "store/internal/core.h"

namespace varda::store::internal {

/// Called by one thread at a time.
class Journal {
 public:
  virtual ~Journal() = default;
  /// All of it is durable on return, or nothing is. `oldest`: history up to there may be forgotten.
  /// kExhausted: disk full; later calls may succeed, and removals do as long as the reserve lasts.
  virtual Status write(const std::vector<EventPtr>& events, Revision oldest) = 0;
  virtual Status compact(Revision revision) = 0;
};

struct SqliteOptions {
  /// Where the file is; null: on the machine's disk. Any other is the caller's alone, so that no lock is taken, and SQLite reaches it
  /// as the VFS named `vfs`.
  os::FileSystem* fs = nullptr;
  const char* vfs = nullptr;
  os::FileSystem& disk() const { return fs != nullptr ? *fs : os::real_file_system(); }
  std::int64_t pages_max = 0;  // of the file, the reserve not counted; 0: SQLite's own limit. How tests get a full disk
  std::int64_t checkpoint_pages = 0;  // of the log, before they go to the file; 0: SQLite's own number. How tests get there soon
  std::function<void(std::string_view)> at;  // told each step of an upgrade, before the next: how tests die in the middle
};

struct OpenedJournal {
  std::unique_ptr<Journal> journal;
  Loaded loaded;
};

/// Errors as open_sqlite().
Result<OpenedJournal> open_sqlite_journal(const std::filesystem::path& file, const SqliteOptions& sqlite);

/// A store over a journal; null: nothing is durable.
std::unique_ptr<Store> make_store(Options options, std::unique_ptr<Journal> journal, Loaded loaded);

}  // namespace varda::store::internal
