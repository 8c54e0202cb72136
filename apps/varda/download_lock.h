// A lock for one `varda fetch` at a time: two for one directory would remove each other's scratch
// files.
#pragma once

#include <filesystem>

#include "base/context.h"

namespace varda::app {

/// Held until destroyed or the process ends. Not thread-safe.
class DownloadLock {
 public:
  /// Waits until no other fetch works on `to`, and logs that it waits. Ok without a lock if the
  /// lock file cannot be created, as in an unwritable directory. The download then reports the
  /// cause. Fails when the context ends.
  static Result<DownloadLock> wait(const Context& ctx, const std::filesystem::path& to);
  DownloadLock(DownloadLock&& other) noexcept;
  DownloadLock& operator=(DownloadLock&&) = delete;
  ~DownloadLock();

 private:
  DownloadLock(std::filesystem::path file, int fd);
  std::filesystem::path file_;  // ".NAME.fetch.lock" beside the directory; removed with this object
  int fd_ = -1;                 // -1: the lock file could not be created
};

}  // namespace varda::app
