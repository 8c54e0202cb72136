// A file system in memory that forgets, on demand, what nobody synced, and whose every call can fail.
//
//   CrashingFileSystem fs;
//   fs.on_call([&](std::string_view call, const Path& path) {
//     check(*fs.crashed(seed));      // what the disk may hold if the power goes just before this call
//     return Status();
//   });
//   work(fs);
//
// What a crash may leave is said in crash_disk.h.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "os/file_system.h"
#include "os/testing/crash_disk.h"

namespace varda::os::testing {

/// Thread-safe. Paths are absolute.
class CrashingFileSystem final : public FileSystem {
 public:
  /// `seed`: of what is lost by a sync that fails.
  explicit CrashingFileSystem(std::uint64_t seed = 1, std::uint64_t capacity_bytes = std::uint64_t{1} << 40);
  ~CrashingFileSystem() override;

  /// The power is cut now, and comes back: what this disk may hold then. The same for the same seed and history.
  std::unique_ptr<CrashingFileSystem> crashed(std::uint64_t seed) const;
  /// The process is killed now, the machine goes on: all is there, and what was pending still is.
  std::unique_ptr<CrashingFileSystem> killed() const;

  /// Asked before every call, with the names that MemoryFileSystem uses. An error becomes the call's result and nothing is done; of
  /// a sync, some is done (CrashDisk::lose). Called without locks held; may call crashed() and killed().
  using Hook = std::function<Status(std::string_view call, const Path& path)>;
  void on_call(Hook hook);

  struct Fault {
    std::uint64_t call = 0;  // by calls(): 0 is the first there ever was
    Error error{Code::kInternal, "Input/output error"};
    std::size_t write_bytes = 0;  // of a write, so many bytes are done before it fails
    bool lasting = false;         // all later calls that would change something fail too, but those that free room
  };
  void set_fault(std::optional<Fault> fault);
  /// The call the fault hit first; empty: none yet.
  std::string hit() const;
  /// Writes beyond it end as kExhausted, as on a full disk.
  void set_capacity(std::uint64_t capacity_bytes);
  std::uint64_t used_bytes() const;
  /// Calls seen so far, whether they failed or not.
  std::uint64_t calls() const;
  /// Grows with everything that changes what a crash may leave.
  std::uint64_t changes() const;
  /// There is something a crash may lose.
  bool pending() const;

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
  friend class CrashingFile;
  using Inode = CrashDisk::Inode;
  struct Place {
    Inode directory = 0;
    std::string name;
    Inode inode = 0;  // 0: nothing there
  };

  CrashingFileSystem(CrashDisk disk, std::uint64_t seed, std::uint64_t capacity_bytes);
  Status enter(std::string_view call, const Path& path);
  /// Symlinks of all components but the last followed. kNotFound: the directory is missing.
  Result<Place> find(const Path& path) const REQUIRES(mutex_);
  Result<Place> find_there(const Path& path) const REQUIRES(mutex_);
  void clear(Inode directory) REQUIRES(mutex_);
  bool fits(std::uint64_t growth) const REQUIRES(mutex_) { return disk_.used_bytes() + growth <= capacity_bytes_; }

  mutable Mutex mutex_;
  CrashDisk disk_ GUARDED_BY(mutex_);
  const std::unique_ptr<Rng> losses_;
  Hook hook_ GUARDED_BY(mutex_);
  std::optional<Fault> fault_ GUARDED_BY(mutex_);
  std::string hit_ GUARDED_BY(mutex_);
  std::uint64_t capacity_bytes_ GUARDED_BY(mutex_);
  std::uint64_t calls_ GUARDED_BY(mutex_) = 0;
};

}  // namespace varda::os::testing
