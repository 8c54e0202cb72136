// Whole stores as values, for backups: read from a closed file, written to a new file.
//
//   TRY(const store::Page all, store->list({}));            // running store, at all.revision
//   TRY(const store::Page all, store::read_sqlite(file));   // stopped store
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

/// Reads every entry and the revision from a file of this or an older format, without upgrading the
/// file. kUnavailable: a process has the file open. kNotFound. Else as open_sqlite().
Result<Page> read_sqlite(const std::filesystem::path& file);

/// First revision of a restored store: above any revision a client can have seen of the lost store
/// or an earlier restore. It is the time in microseconds since 1970, since no store sustains a
/// million writes per second. At least the backup's revision plus a billion, in case the clock is
/// wrong. Below 2^53, which every JSON reader can hold.
Revision revision_after_restore(Revision backed_up, std::chrono::system_clock::time_point now);

/// Writes a new store file. Destroyed before finish(), it removes the file. Not thread-safe.
class SqliteWriter {
 public:
  /// kAlreadyExists: the file exists.
  static Result<std::unique_ptr<SqliteWriter>> create(const std::filesystem::path& file);
  virtual ~SqliteWriter() = default;
  /// kExhausted: disk full. A key added twice is kInvalid.
  virtual Status add(std::string_view key, std::string_view value) = 0;
  /// Gives every entry `revision` as created and modified, with no earlier history. Requests for
  /// older revisions get kGone, and clients hold nothing newer than the restored state. Durable on
  /// return. Called once.
  virtual Status finish(Revision revision) = 0;
};

}  // namespace varda::store
