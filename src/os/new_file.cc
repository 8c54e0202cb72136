#include "os/new_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "os/file_system.h"

namespace varda::os {
namespace {

Error file_error(const std::string& what) {
  const int code = errno;
  const std::string message = what + ": " + std::strerror(code);
  if (code == EEXIST)
    return Error(Code::kAlreadyExists, what + " exists already and is not replaced");
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) return Error(Code::kExhausted, message);
  if (code == ENOENT) return Error(Code::kNotFound, message);
  if (code == EACCES || code == EPERM || code == EROFS) return Error(Code::kForbidden, message);
  return Error(Code::kInternal, message);
}

std::filesystem::path parent_of(const std::filesystem::path& path) {
  return path.parent_path().empty() ? std::filesystem::path(".") : path.parent_path();
}

}  // namespace

NewFile::NewFile(std::filesystem::path path, std::filesystem::path part, int fd)
    : path_(std::move(path)), part_(std::move(part)), fd_(fd) {}
NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      part_(std::exchange(other.part_, {})),
      fd_(std::exchange(other.fd_, -1)),
      read_(other.read_) {}

NewFile::~NewFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!part_.empty()) ::unlink(part_.c_str());
}

Result<NewFile> NewFile::create(const std::filesystem::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) {
    errno = EEXIST;
    return file_error(path.string());
  }
  // The file has no name until keep(), so a killed process leaves nothing.
  int fd = ::open(parent_of(path).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return NewFile(path, {}, fd);
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) return file_error(path.string());
  const std::filesystem::path part = path.string() + ".part";  // for file systems without O_TMPFILE
  fd = ::open(part.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return file_error(part.string());
  return NewFile(path, part, fd);
}

Status NewFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error(path_.string());
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

Result<std::string> NewFile::read() {
  std::string piece(64 << 10, '\0');
  const ssize_t count = ::pread(fd_, piece.data(), piece.size(), read_);
  if (count < 0) return file_error(path_.string());
  piece.resize(static_cast<std::size_t>(count));
  read_ += count;
  return piece;
}

Status NewFile::keep() {
  if (::fsync(fd_) != 0) return file_error(path_.string());
  const std::string now = part_.empty() ? "/proc/self/fd/" + std::to_string(fd_) : part_.string();
  if (::linkat(AT_FDCWD, now.c_str(), AT_FDCWD, path_.c_str(),
               part_.empty() ? AT_SYMLINK_FOLLOW : 0) != 0)
    return file_error(path_.string());
  return real_file_system().sync_directory(parent_of(path_));
}

}  // namespace varda::os
