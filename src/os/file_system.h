// The file system as an interface: the real one, and fakes that can fail at every call
// (os/testing).
//
// Durability is explicit: a write is safe after sync() of the file *and* sync_directory() of the
// folder that names it.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace varda::os {

using Path = std::filesystem::path;

/// An open file. Not thread-safe. Closed when destroyed.
class File {
 public:
  virtual ~File() = default;
  /// Appends or writes at the current position; all of it, or an error. kExhausted: disk full or
  /// quota.
  virtual Status write(std::string_view bytes) = 0;
  /// Up to `max` bytes from the current position; empty at the end.
  virtual Result<std::string> read(std::size_t max) = 0;
  virtual Status seek(std::uint64_t offset) = 0;
  virtual Status truncate(std::uint64_t size) = 0;
  virtual Result<std::uint64_t> size() = 0;
  virtual Status sync() = 0;
};

enum class FileKind { kFile, kDirectory, kSymlink, kOther };

struct FileInfo {
  FileKind kind = FileKind::kFile;
  std::uint64_t size_bytes = 0;
  std::uint32_t mode = 0;  // permission bits
  std::uint64_t links = 1;
  std::uint64_t inode = 0;
  std::chrono::system_clock::time_point modified;
};

enum class Open {
  kRead,       // must exist
  kCreate,     // read and write, created if missing
  kTruncate,   // read and write, emptied
  kExclusive,  // read and write, must not exist (kAlreadyExists)
};

struct Space {
  std::uint64_t capacity_bytes = 0;
  std::uint64_t available_bytes = 0;
};

/// Thread-safe. No call follows a symlink in the last component, except where noted.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual Result<std::unique_ptr<File>> open(const Path& path, Open how,
                                             std::uint32_t mode = 0644) = 0;
  virtual Result<std::optional<FileInfo>> stat(const Path& path) = 0;  // lstat; nullopt: missing
  virtual Result<std::vector<std::string>> list(const Path& directory) = 0;  // names, sorted
  virtual Status make_directories(const Path& path, std::uint32_t mode = 0755) = 0;
  virtual Status rename(const Path& from, const Path& to) = 0;  // replaces files atomically
  virtual Status link(const Path& existing, const Path& name) = 0;
  virtual Status symlink(const std::string& target, const Path& name) = 0;
  virtual Result<std::string> read_link(const Path& path) = 0;
  virtual Status remove(const Path& path) = 0;  // a file, link or empty directory; ok if missing
  virtual Status remove_all(const Path& path) = 0;  // a tree; never follows links; ok if missing
  virtual Status set_mode(const Path& path, std::uint32_t mode) = 0;
  /// Only root may set any group. No effect where files have no owners, as in memory.
  virtual Status set_group(const Path& /*path*/, std::uint32_t /*group*/) { return {}; }
  virtual Status sync_directory(const Path& path) = 0;
  virtual Result<Space> space(const Path& path) = 0;
  /// Creates or replaces a file of that size with allocated blocks, which reserves disk space.
  /// kExhausted: not enough space; then the file does not exist.
  virtual Status allocate(const Path& path, std::uint64_t bytes, std::uint32_t mode = 0600) = 0;
};

/// The machine's file system.
FileSystem& real_file_system();

Result<std::string> read_file(FileSystem& fs, const Path& path,
                              std::uint64_t max_bytes = 64u << 20);
/// Writes a scratch file, syncs, renames it over `path` and syncs the directory. A reader sees
/// either the old or the new bytes, also after a crash.
Status write_file_atomically(FileSystem& fs, const Path& path, std::string_view bytes,
                             std::uint32_t mode = 0644);
/// Removes scratch files of write_file_atomically() that a killed process left in `directory`. Only
/// the directory's owner may call this, before any writer starts. Ok if the directory is missing.
Status remove_leftovers(FileSystem& fs, const Path& directory);

/// Held until destroyed or the process ends (flock). kUnavailable: another process holds the lock;
/// the message names its pid if known.
class FileLock {
 public:
  static Result<std::unique_ptr<FileLock>> acquire(const Path& path);
  virtual ~FileLock() = default;
};

}  // namespace varda::os
