// Reads files below allowed directories only, for paths from untrusted sources.
//
// A path is resolved first, including links, and must lie below a root. It is then opened from the
// root by components, without following links. Replacing a component by a link meanwhile has no
// effect. Works on every kernel.
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

/// Facts that change with every change of a file.
struct FileFacts {
  FileKind kind = FileKind::kFile;
  std::uint64_t size_bytes = 0;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t modified_ns = 0;  // since 1970
  std::int64_t changed_ns = 0;   // of the inode; changes even if a writer restores modified_ns
  friend bool operator==(const FileFacts&, const FileFacts&) = default;
};

/// A regular file, open for reading. Not thread-safe. Closed when destroyed.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  /// Fills `bytes` from `offset` on and returns the count; less only at the end of the file.
  virtual Result<std::size_t> read(std::uint64_t offset, std::span<char> bytes) = 0;
  /// The present facts.
  virtual Result<FileFacts> facts() = 0;
};

/// A folder being listed. Not thread-safe.
class ReadableDirectory {
 public:
  virtual ~ReadableDirectory() = default;
  struct Entry {
    std::string name;
    FileFacts facts;  // of a link itself, not its target
  };
  /// The next entry, unordered; nullopt at the end. Skips entries removed meanwhile.
  virtual Result<std::optional<Entry>> next() = 0;
  /// Opens an entry by name. kInvalid: a link, or not a regular file or directory.
  virtual Result<std::unique_ptr<ReadableFile>> open(const std::string& name) = 0;
  virtual Result<std::unique_ptr<ReadableDirectory>> descend(const std::string& name) = 0;
};

/// Thread-safe. Paths are absolute, or relative to the working directory.
class ReadableTree {
 public:
  virtual ~ReadableTree() = default;
  /// Facts of the file behind links. kForbidden: outside the roots, or refused by the system.
  /// kNotFound.
  virtual Result<FileFacts> facts(const Path& path) = 0;
  /// kInvalid: not a regular file; pipes and devices are never opened.
  virtual Result<std::unique_ptr<ReadableFile>> open(const Path& path) = 0;
  /// kInvalid: not a directory.
  virtual Result<std::unique_ptr<ReadableDirectory>> list(const Path& path) = 0;
};

/// The machine's files below `roots`; kInvalid if a root is not a directory.
Result<std::unique_ptr<ReadableTree>> open_readable_tree(const std::vector<Path>& roots);

}  // namespace varda::os
