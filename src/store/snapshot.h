// Whole stores as values, for backups: read from a file that nobody has open, and written into a new one.
//
//   TRY(const store::Page all, store->list({}));            // of a store that runs: one snapshot, at all.revision
//   TRY(const store::Page all, store::read_sqlite(file));   // of one that does not
//   TRY(auto writer, store::SqliteWriter::create(other));
//   for (const store::Entry& entry : all.entries) TRY_VOID(writer->add(entry.key, *entry.value));
//   TRY_VOID(writer->finish(store::revision_after_restore(all.revision, system_clock().wall())));
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "store/store.h"

namespace varda::store {

/// Every entry and the revision, from a file of this or an older format, which stays in its format. kUnavailable: a process has it
/// open. Else as open_sqlite(), and kNotFound.
Result<Page> read_sqlite(const std::filesystem::path& file);

/// Where the revisions of a restored store begin: later than any that a client can have seen of the store that was lost, or of an
/// earlier restore. The microseconds since 1970 are (no store writes a million revisions a second for long); should the clock stand
/// wrong, a billion more than the backup has stands in for it. Below 2^53, which every JSON reader can hold.
Revision revision_after_restore(Revision backed_up, std::chrono::system_clock::time_point now);

/// Makes a store's file. What it was before finish() is removed with it. Not thread-safe.
class SqliteWriter {
 public:
  /// kAlreadyExists: the file is there.
  static Result<std::unique_ptr<SqliteWriter>> create(const std::filesystem::path& file);
  virtual ~SqliteWriter() = default;
  /// kExhausted: disk full. A key added twice is kInvalid.
  virtual Status add(std::string_view key, std::string_view value) = 0;
  /// Every entry was created and last changed at `revision`, and there is no history before it: whoever asks for something older is
  /// told kGone, and nothing that a client kept counts as newer than what was restored. Durable on return. Once.
  virtual Status finish(Revision revision) = 0;
};

}  // namespace varda::store
