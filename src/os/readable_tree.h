// Reading below allowed directories and nowhere else: for paths that somebody else named.
//
// A path is resolved first, links included, and must then lie below one of the roots. It is opened from the root one component at a
// time without following any link, so that whoever swaps a component for a link meanwhile gains nothing. Works on every kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "os/file_system.h"

namespace varda::os {

/// What tells one state of a file from another.
struct FileFacts {
  FileKind kind = FileKind::kFile;
  std::uint64_t size_bytes = 0;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t modified_ns = 0;  // since 1970
  std::int64_t changed_ns = 0;   // the inode's: what wrote and put the old time back shows here
  friend bool operator==(const FileFacts&, const FileFacts&) = default;
};

/// A regular file, open for reading. Not thread-safe. Closed when destroyed.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  /// Fills `bytes` from `offset` on; less only at the file's end. Returns how many.
  virtual Result<std::size_t> read(std::uint64_t offset, std::span<char> bytes) = 0;
  /// As they are now.
  virtual Result<FileFacts> facts() = 0;
};

/// A folder being listed. Not thread-safe.
class ReadableDirectory {
 public:
  virtual ~ReadableDirectory() = default;
  struct Entry {
    std::string name;
    FileFacts facts;  // of a link itself, where it is one
  };
  /// In no order; nothing at the end. What goes away meanwhile is left out.
  virtual Result<std::optional<Entry>> next() = 0;
  /// An entry of this folder, by its name alone; links are kInvalid, as is what is no regular file, and no directory.
  virtual Result<std::unique_ptr<ReadableFile>> open(const std::string& name) = 0;
  virtual Result<std::unique_ptr<ReadableDirectory>> descend(const std::string& name) = 0;
};

/// Thread-safe. Paths are absolute, or below the working directory.
class ReadableTree {
 public:
  virtual ~ReadableTree() = default;
  /// Of what is there behind links. kForbidden: it lies outside of the roots, or the system refuses. kNotFound.
  virtual Result<FileFacts> facts(const Path& path) = 0;
  /// kInvalid: no regular file; a pipe or device is never opened for reading.
  virtual Result<std::unique_ptr<ReadableFile>> open(const Path& path) = 0;
  /// kInvalid: no directory.
  virtual Result<std::unique_ptr<ReadableDirectory>> list(const Path& path) = 0;
};

/// The machine's files below `roots`, each of which must be a directory; kInvalid where there is none.
Result<std::unique_ptr<ReadableTree>> open_readable_tree(const std::vector<Path>& roots);

}  // namespace varda::os
