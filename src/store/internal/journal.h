// Journal: makes committed events durable.
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
  /// Either all events are durable on return, or none. History up to `oldest` may be dropped.
  /// kExhausted: disk full. Later calls may succeed; removals succeed while the reserve lasts.
  virtual Status write(const std::vector<EventPtr>& events, Revision oldest) = 0;
  virtual Status compact(Revision revision) = 0;
};

struct SqliteOptions {
  /// File system of the file; null: the machine's disk. Any other is used by one store only, so no
  /// lock is taken. SQLite accesses it through the VFS named `vfs`.
  os::FileSystem* fs = nullptr;
  const char* vfs = nullptr;
  os::FileSystem& disk() const { return fs != nullptr ? *fs : os::real_file_system(); }
  std::int64_t pages_max =
      0;  // limit of the file without the reserve; 0: SQLite's limit. For tests of a full disk
  std::int64_t checkpoint_pages =
      0;  // of the log before a checkpoint; 0: SQLite's default. For tests
  std::function<void(std::string_view)>
      at;  // called after each step of an upgrade; tests crash here
};

struct OpenedJournal {
  std::unique_ptr<Journal> journal;
  Loaded loaded;
};

/// Errors: see open_sqlite().
Result<OpenedJournal> open_sqlite_journal(const std::filesystem::path& file,
                                          const SqliteOptions& sqlite);

/// A store over a journal. Null: nothing is durable.
std::unique_ptr<Store> make_store(Options options, std::unique_ptr<Journal> journal, Loaded loaded);

}  // namespace varda::store::internal
