// DirectoryWatch: sleeps until one of several directories changes (inotify).
//
// A hint and no more: network file systems and some mounts tell nothing, so whoever waits also looks by itself now and then.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

namespace varda::serving::internal {

/// One thread calls watch() and wait(); wake() may be called from any.
class DirectoryWatch {
 public:
  /// Works, without hints, also where the kernel refuses inotify.
  DirectoryWatch();
  ~DirectoryWatch();
  DirectoryWatch(const DirectoryWatch&) = delete;
  DirectoryWatch& operator=(const DirectoryWatch&) = delete;

  /// From now on exactly these directories are watched; those that do not exist are left out.
  void watch(const std::set<std::filesystem::path>& directories);
  /// Until something in them changed, wake() was called since the last wait, or `timeout` passed.
  void wait(std::chrono::milliseconds timeout);
  void wake();

 private:
  int inotify_ = -1;
  int event_ = -1;
  std::map<std::filesystem::path, int> watches_;
};

}  // namespace varda::serving::internal
