// DirectoryWatch: sleeps until one of several directories changes (inotify).
//
// Events are only hints: network file systems and some mounts send none, so callers also scan
// periodically.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

namespace varda::serving::internal {

/// One thread calls watch() and wait(); any thread may call wake().
class DirectoryWatch {
 public:
  /// Works without hints if the kernel refuses inotify.
  DirectoryWatch();
  ~DirectoryWatch();
  DirectoryWatch(const DirectoryWatch&) = delete;
  DirectoryWatch& operator=(const DirectoryWatch&) = delete;

  /// Watches exactly these directories from now on; missing ones are skipped.
  void watch(const std::set<std::filesystem::path>& directories);
  /// Blocks until a directory changes, wake() was called since the last wait, or `timeout` passes.
  void wait(std::chrono::milliseconds timeout);
  void wake();

 private:
  int inotify_ = -1;
  int event_ = -1;
  std::map<std::filesystem::path, int> watches_;
};

}  // namespace varda::serving::internal
