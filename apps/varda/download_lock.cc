#include "download_lock.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/log.h"

namespace varda::app {
namespace {

/// False if the previous holder removed the file: then the lock on `fd` protects nothing.
bool is_unchanged(const std::filesystem::path& file, int fd) {
  struct stat opened {
  }, named{};
  return ::fstat(fd, &opened) == 0 && ::lstat(file.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

DownloadLock::DownloadLock(std::filesystem::path file, int fd) : file_(std::move(file)), fd_(fd) {}
DownloadLock::DownloadLock(DownloadLock&& other) noexcept
    : file_(std::move(other.file_)), fd_(std::exchange(other.fd_, -1)) {}

DownloadLock::~DownloadLock() {
  if (fd_ < 0) return;
  ::unlink(file_.c_str());  // before the release, while the file is ours
  ::close(fd_);
}

Result<DownloadLock> DownloadLock::wait(const Context& ctx, const std::filesystem::path& to) {
  std::filesystem::path directory = std::filesystem::absolute(to).lexically_normal();
  if (!directory.has_filename()) directory = directory.parent_path();
  std::error_code error;
  std::filesystem::create_directories(directory.parent_path(), error);
  const std::filesystem::path file =
      directory.parent_path() / ("." + directory.filename().string() + ".fetch.lock");
  bool reported = false;
  while (true) {
    const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return DownloadLock(file, -1);
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
      if (is_unchanged(file, fd)) return DownloadLock(file, fd);
    } else if (errno != EWOULDBLOCK && errno != EINTR) {
      ::close(fd);
      return DownloadLock(file, -1);
    } else if (!std::exchange(reported, true)) {
      log::info("waiting for another fetch of this directory", {{"directory", directory.string()}});
    }
    ::close(fd);
    TRY_VOID(ctx.sleep_for(std::chrono::milliseconds(100)));
  }
}

}  // namespace varda::app
