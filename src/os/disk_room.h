// Keeps a reserve of the disk free for other writers.
#pragma once

#include <cstdint>
#include <utility>

#include "base/result.h"
#include "os/file_system.h"

namespace varda::os {

/// Keeps large files (models, copies) from filling a disk that also holds records, logs or a
/// control plane. Not thread-safe.
class DiskRoom {
 public:
  /// `place` is any path on the disk. `fs` outlives this.
  DiskRoom(FileSystem& fs, Path place) : fs_(fs), place_(std::move(place)) {}
  /// Called before writing `bytes`. kExhausted: the write would use the reserve, 64 MiB or a
  /// twentieth of the disk.
  Status take(std::uint64_t bytes);

 private:
  FileSystem& fs_;
  const Path place_;
  std::uint64_t left_ = 0;  // bytes granted before the next check
};

}  // namespace varda::os
