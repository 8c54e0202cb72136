// A file read at any offset by many threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "os/file_system.h"

namespace varda::os {

/// Thread-safe. Reads copy from the page cache. Mapping was tried: in virtual machines its page
/// faults took ten times as long as the copies.
class PositionalFile {
 public:
  /// Opens a file of real_file_system(); reads the whole file from any other file system.
  /// kNotFound: no such file. kInvalid: not a regular file.
  static Result<std::shared_ptr<const PositionalFile>> open(FileSystem& fs, const Path& path);
  /// A file of these bytes.
  static std::shared_ptr<const PositionalFile> of(std::string bytes);

  virtual ~PositionalFile() = default;
  virtual std::uint64_t size() const = 0;
  /// Fills `out`. kCorrupt: the file ends before. kUnavailable: the disk cannot read.
  virtual Status read(std::uint64_t offset, std::span<std::byte> out) const = 0;
  /// All bytes if they are in memory, else empty.
  virtual std::span<const std::byte> bytes() const { return {}; }
};

}  // namespace varda::os
