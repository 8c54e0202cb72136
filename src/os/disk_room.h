// Keeps a reserve of the disk free for other writers.
#pragma once

#include <cstdint>
#include <utility>

#include "base/result.h"
#include "os/file_system.h"

namespace varda::os {

/// Models and copies of files that do not fit must not keep records, logs or a control plane on the same disk from being written.
/// Not thread-safe.
class DiskRoom {
 public:
  /// `place` lies on the disk that is meant. `fs` outlives this.
  DiskRoom(FileSystem& fs, Path place) : fs_(fs), place_(std::move(place)) {}
  /// Before so many bytes are written. kExhausted: they would not leave the reserve, 64 MiB or a twentieth of the disk.
  Status take(std::uint64_t bytes);

 private:
  FileSystem& fs_;
  const Path place_;
  std::uint64_t left_ = 0;  // may be taken before the disk is asked again
};

}  // namespace varda::os
