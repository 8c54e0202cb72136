// An in-memory file system that loses unsynced data on demand, and can fail at every call.
//
//   CrashingFileSystem fs;
//   fs.on_call([&](std::string_view call, const Path& path) {
//     check(*fs.crashed(seed));      // a possible disk state if the power fails before this call
//     return Status();
//   });
//   work(fs);
//
// crash_disk.h defines the possible states after a crash.
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
  /// `seed` decides the data lost by failed syncs.
  explicit CrashingFileSystem(std::uint64_t seed = 1,
                              std::uint64_t capacity_bytes = std::uint64_t{1} << 40);
  ~CrashingFileSystem() override;

  /// A copy after a power cut; deterministic for a seed and history.
  std::unique_ptr<CrashingFileSystem> crashed(std::uint64_t seed) const;
  /// A copy after a kill of the process: nothing is lost, and pending changes stay pending.
  std::unique_ptr<CrashingFileSystem> killed() const;

  /// Called before every call, with the names of MemoryFileSystem. An error becomes the call's
  /// result and the call has no effect; a failed sync is partly done (CrashDisk::lose). Called
  /// without locks; may call crashed() and killed().
  using Hook = std::function<Status(std::string_view call, const Path& path)>;
  void on_call(Hook hook);

  struct Fault {
    std::uint64_t call = 0;  // index as in calls(), from 0
    Error error{Code::kInternal, "Input/output error"};
    std::size_t write_bytes = 0;  // a failing write first writes this many bytes
    bool lasting = false;         // all later changes fail too, except removals
  };
  void set_fault(std::optional<Fault> fault);
  /// The first call that failed; empty: none yet.
  std::string hit() const;
  /// Writes beyond the capacity fail with kExhausted, as on a full disk.
  void set_capacity(std::uint64_t capacity_bytes);
  std::uint64_t used_bytes() const;
  /// Number of calls so far, including failed ones.
  std::uint64_t calls() const;
  /// Grows with every change that affects crash results.
  std::uint64_t changes() const;
  /// True if a crash may lose something.
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
    Inode inode = 0;  // 0: missing
  };

  CrashingFileSystem(CrashDisk disk, std::uint64_t seed, std::uint64_t capacity_bytes);
  Status enter(std::string_view call, const Path& path);
  /// Follows symlinks in all components but the last. kNotFound: the directory is missing.
  Result<Place> find(const Path& path) const REQUIRES(mutex_);
  Result<Place> find_existing(const Path& path) const REQUIRES(mutex_);
  void clear(Inode directory) REQUIRES(mutex_);
  bool fits(std::uint64_t growth) const REQUIRES(mutex_) {
    return disk_.used_bytes() + growth <= capacity_bytes_;
  }

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
