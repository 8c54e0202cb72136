// Where committed events become durable.
#pragma once

#include <vector>

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
  std::int64_t pages_max = 0;  // of the file, the reserve not counted; 0: SQLite's own limit. How tests get a full disk
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
