// A file system in memory whose every call can be made to fail.
//
// Hard links, symlinks, permissions bits and renames behave as on disk; paths are absolute. Nothing is lost by a crash here:
// on_call() is where a test sees every call in order, and may make any of them fail or stop the world.
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

  /// Asked before every call with its name ("open", "read", "write", "seek", "truncate", "size", "sync", "stat", "list", "mkdir",
  /// "rename", "link", "symlink", "read_link", "remove", "remove_all", "set_mode", "sync_directory", "space", "allocate") and its
  /// path. An error becomes the call's result, and nothing is done. Called without locks held.
  using Hook = std::function<Status(std::string_view call, const Path& path)>;
  void on_call(Hook hook);
  /// The `nth` call from now (1: the next one) of that name ("" counts all) fails; the others do not. Replaces the hook.
  void fail_nth(int nth, std::string call = "", Error error = Error(Code::kInternal, "injected failure"));
  /// Writes beyond it end as kExhausted, as on a full disk.
  void set_capacity(std::uint64_t capacity_bytes);
  /// Calls seen so far, whether they failed or not.
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
  using Nodes = std::map<std::string, std::shared_ptr<Node>>;  // by normal path, without a trailing '/'

  Status enter(std::string_view call, const Path& path);
  /// The path with symlinks of all components but the last followed.
  Result<std::string> resolve(const Path& path) REQUIRES(mutex_);
  Result<std::string> resolve_parent(const Path& path) REQUIRES(mutex_);  // its directory must exist
  std::shared_ptr<Node> at(const std::string& path) REQUIRES(mutex_);
  bool has_children(const std::string& path) REQUIRES(mutex_);
  std::uint64_t used() const REQUIRES(mutex_);

  mutable Mutex mutex_;
  Nodes nodes_ GUARDED_BY(mutex_);
  Hook hook_ GUARDED_BY(mutex_);
  std::uint64_t capacity_bytes_ GUARDED_BY(mutex_);
  std::uint64_t calls_ GUARDED_BY(mutex_) = 0;
  std::uint64_t inodes_ GUARDED_BY(mutex_) = 1;
  bool symlinks_ GUARDED_BY(mutex_) = false;  // whether there ever was one: most tests have none to follow
};

}  // namespace varda::os::testing
