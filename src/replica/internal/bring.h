// One copy being made: a folder of its own beside what readers see, until it is whole.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "os/disk_room.h"
#include "replica/difference.h"
#include "replica/store.h"

namespace varda::replica {

/// A file of this disk whose blocks may be used, and what it holds; in blocks as long as those of the copy that is made.
struct LocalFile {
  os::Path path;
  SnapshotFile holds;
};

/// What the folder of a copy under way holds that is whole: files, and the first blocks of the one that was being written. Reads
/// and checks only the latter. Nothing if its blocks have another length.
std::vector<LocalFile> staged_files(os::FileSystem& fs, const os::Path& staging, std::uint64_t block_bytes, const Limits& limits);

/// Fills STAGING/tree with `wanted`; what is there already stays. `local` are files to take blocks from. Everything is synced when
/// it returns well.
class Bring {
 public:
  Bring(const Context& ctx, os::FileSystem& fs, os::Path staging, const Snapshot& wanted, std::vector<LocalFile> local,
        BlockSource& source, std::function<void(const Progress&)> progress);
  /// `file_name` is the only file's, where the snapshot is one file.
  Status run(const std::string& file_name);

 private:
  Status file(const SnapshotFile& wanted, const FilePlan& plan, const os::Path& final);
  /// The blocks that are in the part already; what is behind them is cut off.
  Result<std::uint64_t> resume(os::File& part, const SnapshotFile& wanted);
  Status copy(os::File& part, const SnapshotFile& wanted, const BlockRun& run);
  Status fetch(os::File& part, const SnapshotFile& wanted, std::uint64_t first, std::uint64_t count);
  Status fetch_once(os::File& part, const SnapshotFile& wanted, std::uint64_t& next, std::uint64_t end);
  /// The reserve of the disk stays: a node that shares more than fits must not stop this one.
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
