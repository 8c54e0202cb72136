// A file's bytes for reading, without a copy where the file system allows it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"
#include "os/file_system.h"

namespace varda::os {

/// Immutable, thread-safe. The file must not shrink while it is mapped: a read beyond the new end
/// raises SIGBUS. Removing or replacing the name is safe.
class MappedFile {
 public:
  /// Maps a file of real_file_system(); reads the whole file from any other file system.
  /// kNotFound: no such file. kInvalid: not a regular file.
  static Result<std::shared_ptr<const MappedFile>> open(FileSystem& fs, const Path& path);

  virtual ~MappedFile() = default;
  virtual std::span<const std::byte> bytes() const = 0;
  /// The pages of this range leave the memory of the process; the next read brings them back.
  virtual void release(std::size_t offset, std::size_t size) const = 0;
};

}  // namespace varda::os
