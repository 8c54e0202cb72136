// Builds one version of a replica in a staging folder, hidden from readers until complete.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "os/disk_room.h"
#include "replica/difference.h"
#include "replica/store.h"

namespace varda::replica {

/// A local file with reusable blocks, and its content. Its block length equals that of the wanted
/// snapshot.
struct LocalFile {
  os::Path path;
  SnapshotFile holds;
};

/// The complete content of a staging folder: whole files, and the first blocks of the file being
/// written. Reads and checks only the latter. Empty if the block length differs.
std::vector<LocalFile> staged_files(os::FileSystem& fs, const os::Path& staging,
                                    std::uint64_t block_bytes, const Limits& limits);

/// Fills STAGING/tree with `wanted`; existing files stay. `local` lists files with reusable blocks.
/// On success everything is synced.
class Bring {
 public:
  Bring(const Context& ctx, os::FileSystem& fs, os::Path staging, const Snapshot& wanted,
        std::vector<LocalFile> local, BlockSource& source,
        std::function<void(const Progress&)> progress);
  /// `file_name` names the file of a snapshot of a single file.
  Status run(const std::string& file_name);

 private:
  Status file(const SnapshotFile& wanted, const FilePlan& plan, const os::Path& final);
  /// Returns the number of correct blocks at the start of the part, and truncates the rest.
  Result<std::uint64_t> resume(os::File& part, const SnapshotFile& wanted);
  Status copy(os::File& part, const SnapshotFile& wanted, const BlockRun& run);
  Status fetch(os::File& part, const SnapshotFile& wanted, std::uint64_t first,
               std::uint64_t count);
  Status fetch_once(os::File& part, const SnapshotFile& wanted, std::uint64_t& next,
                    std::uint64_t end);
  /// Keeps the disk's reserve free, so that a peer that shares more than fits does not stop this
  /// node.
  Status write(os::File& part, std::string_view block);
  Status sync_folders(const os::Path& folder);
  void note(std::uint64_t bytes);

  const Context& ctx_;
  os::FileSystem& fs_;
  const os::Path staging_;
  const Snapshot& wanted_;
  const std::vector<LocalFile> local_;
  BlockSource& source_;
  const std::function<void(const Progress&)> progress_;
  os::DiskRoom room_;
  Progress done_;
};

}  // namespace varda::replica
