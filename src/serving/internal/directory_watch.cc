#include "serving/internal/directory_watch.h"

#include <array>
#include <cstdint>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>
#include <utility>

#include "base/check.h"

namespace varda::serving::internal {
namespace {

constexpr std::uint32_t kChanges = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
                                   IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;

void drain(int descriptor) {
  alignas(8) std::array<char, 4096> buffer{};
  while (::read(descriptor, buffer.data(), buffer.size()) > 0) {
  }
}

}  // namespace

DirectoryWatch::DirectoryWatch()
    : inotify_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)),
      event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  CHECK(event_ >= 0);
}

DirectoryWatch::~DirectoryWatch() {
  if (inotify_ >= 0) ::close(inotify_);
  ::close(event_);
}

void DirectoryWatch::watch(const std::set<std::filesystem::path>& directories) {
  if (inotify_ < 0) return;
  for (auto it = watches_.begin(); it != watches_.end();) {
    if (directories.count(it->first) > 0) {
      ++it;
    } else {
      ::inotify_rm_watch(inotify_, it->second);
      it = watches_.erase(it);
    }
  }
  for (const std::filesystem::path& directory : directories) {
    // Added even if already watched: the directory may have been replaced by another of the same
    // name.
    const int watch = ::inotify_add_watch(inotify_, directory.c_str(), kChanges);
    if (watch < 0) continue;
    const auto [it, added] = watches_.try_emplace(directory, watch);
    if (!added && it->second != watch)
      ::inotify_rm_watch(inotify_, std::exchange(it->second, watch));
  }
}

void DirectoryWatch::wait(std::chrono::milliseconds timeout) {
  std::array<pollfd, 2> polled = {{{event_, POLLIN, 0}, {inotify_, POLLIN, 0}}};
  ::poll(polled.data(), inotify_ >= 0 ? 2 : 1, static_cast<int>(timeout.count()));
  drain(event_);
  if (inotify_ >= 0) drain(inotify_);
}

void DirectoryWatch::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(event_, &one, sizeof one);
}

}  // namespace varda::serving::internal
