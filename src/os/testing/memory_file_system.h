// An in-memory file system that can fail at every call.
//
// Hard links, symlinks, permission bits and renames behave as on disk; paths are absolute. Crashes
// lose nothing here. With on_call(), a test sees every call in order, and may let it fail or stop
// everything.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "os/file_system.h"

namespace varda::os::testing {

/// Thread-safe.
class MemoryFileSystem final : public FileSystem {
 public:
  explicit MemoryFileSystem(std::uint64_t capacity_bytes = std::uint64_t{1} << 40);
  ~MemoryFileSystem() override;

  /// Called before every call with its name ("open", "read", "write", "seek", "truncate", "size",
  /// "sync", "stat", "list", "mkdir", "rename", "link", "symlink", "read_link", "remove",
  /// "remove_all", "set_mode", "sync_directory", "space", "allocate") and its path. An error
  /// becomes the call's result, and the call has no effect. Called without locks.
  using Hook = std::function<Status(std::string_view call, const Path& path)>;
  void on_call(Hook hook);
  /// The `nth` call of that name from now on fails (1: the next one; "" counts all calls). Replaces
  /// the hook.
  void fail_nth(int nth, std::string call = "",
                Error error = Error(Code::kInternal, "injected failure"));
  /// Writes beyond the capacity fail with kExhausted, as on a full disk.
  void set_capacity(std::uint64_t capacity_bytes);
  /// Number of calls so far, including failed ones.
  std::uint64_t calls() const;

  Result<std::unique_ptr<File>> open(const Path& path, Open how, std::uint32_t mode) override;
  Result<std::optional<FileInfo>> stat(const Path& path) override;
  Result<std::vector<std::string>> list(const Path& directory) override;
  Status make_directories(const Path& path, std::uint32_t mode) override;
  Status rename(const Path& from, const Path& to) override;
  Status link(const Path& existing, const Path& name) override;
  Status symlink(const std::string& target, const Path& name) override;
  Result<std::string> read_link(const Path& path) override;
  Status remove(const Path& path) override;
  Status remove_all(const Path& path) override;
  Status set_mode(const Path& path, std::uint32_t mode) override;
  Status sync_directory(const Path& path) override;
  Result<Space> space(const Path& path) override;
  Status allocate(const Path& path, std::uint64_t bytes, std::uint32_t mode) override;

 private:
  friend class MemoryFile;
  struct Node;
  using Nodes =
      std::map<std::string, std::shared_ptr<Node>>;  // by normal path, without a trailing '/'

  Status enter(std::string_view call, const Path& path);
  /// The path with symlinks followed in all components but the last.
  Result<std::string> resolve(const Path& path) REQUIRES(mutex_);
  Result<std::string> resolve_parent(const Path& path)
      REQUIRES(mutex_);  // its directory must exist
  std::shared_ptr<Node> at(const std::string& path) REQUIRES(mutex_);
  bool has_children(const std::string& path) REQUIRES(mutex_);
  std::uint64_t used() const REQUIRES(mutex_);

  mutable Mutex mutex_;
  Nodes nodes_ GUARDED_BY(mutex_);
  Hook hook_ GUARDED_BY(mutex_);
  std::uint64_t capacity_bytes_ GUARDED_BY(mutex_);
  std::uint64_t calls_ GUARDED_BY(mutex_) = 0;
  std::uint64_t inodes_ GUARDED_BY(mutex_) = 1;
  bool symlinks_ GUARDED_BY(mutex_) = false;  // any symlink ever made; most tests have none
};

}  // namespace varda::os::testing
