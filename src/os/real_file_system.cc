#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <system_error>
#include <unistd.h>

#include "base/clock.h"
#include "os/file_system.h"
#include "os/internal/posix.h"

namespace varda::os {
namespace {

using internal::Descriptor;
using internal::errno_error;
using internal::retry;

class RealFile final : public File {
 public:
  // Start of writeback: at the kernel's choice, or early, so that the final sync has little left to
  // do.
  enum class Writeback { kLazy, kEarly };

  RealFile(Descriptor descriptor, Path path, Writeback writeback)
      : descriptor_(std::move(descriptor)), path_(std::move(path)), writeback_(writeback) {}

  Status write(std::string_view bytes) override {
    const std::size_t size = bytes.size();
    while (!bytes.empty()) {
      const ssize_t written =
          retry([&] { return ::write(descriptor_.get(), bytes.data(), bytes.size()); });
      if (written < 0) return failed("write");
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    constexpr std::size_t kEarlyBytes = 8 << 20;
    if (writeback_ == Writeback::kEarly && (unstarted_ += size) >= kEarlyBytes) {
      unstarted_ = 0;
      // Starts writeback without waiting. Only an optimization, so errors are ignored.
      (void)::sync_file_range(descriptor_.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
    }
    return {};
  }

  Result<std::string> read(std::size_t max) override {
    std::string bytes(max, '\0');
    const ssize_t count =
        retry([&] { return ::read(descriptor_.get(), bytes.data(), bytes.size()); });
    if (count < 0) return failed("read");
    bytes.resize(static_cast<std::size_t>(count));
    return bytes;
  }

  Status seek(std::uint64_t offset) override {
    if (::lseek(descriptor_.get(), static_cast<off_t>(offset), SEEK_SET) < 0) return failed("seek");
    return {};
  }

  Status truncate(std::uint64_t size) override {
    if (retry([&] { return ::ftruncate(descriptor_.get(), static_cast<off_t>(size)); }) < 0)
      return failed("truncate");
    return {};
  }

  Result<std::uint64_t> size() override {
    struct stat info {};
    if (::fstat(descriptor_.get(), &info) < 0) return failed("stat");
    return static_cast<std::uint64_t>(info.st_size);
  }

  Status sync() override {
    if (retry([&] { return ::fsync(descriptor_.get()); }) < 0) return failed("sync");
    return {};
  }

 private:
  Error failed(std::string_view what) const {
    const int number = errno;
    return errno_error(number, std::string(what) + " " + path_.string());
  }

  Descriptor descriptor_;
  const Path path_;
  const Writeback writeback_;
  std::size_t unstarted_ = 0;
};

Error failed(std::string_view what, const Path& path) {
  const int number = errno;
  return errno_error(number, std::string(what) + " " + path.string());
}

FileKind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return FileKind::kFile;
  if (S_ISDIR(mode)) return FileKind::kDirectory;
  if (S_ISLNK(mode)) return FileKind::kSymlink;
  return FileKind::kOther;
}

class RealFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> open(const Path& path, Open how, std::uint32_t mode) override {
    int flags = O_CLOEXEC | O_NOFOLLOW;
    switch (how) {
      case Open::kRead:
        flags |= O_RDONLY;
        break;
      case Open::kCreate:
        flags |= O_RDWR | O_CREAT;
        break;
      case Open::kTruncate:
        flags |= O_RDWR | O_CREAT | O_TRUNC;
        break;
      case Open::kExclusive:
        flags |= O_RDWR | O_CREAT | O_EXCL;
        break;
    }
    Descriptor descriptor(
        retry([&] { return ::open(path.c_str(), flags, static_cast<mode_t>(mode)); }));
    if (!descriptor.ok()) return failed("open", path);
    // A file from kExclusive usually stays, so write early. Others are often short-lived scratch
    // files.
    return std::make_unique<RealFile>(
        std::move(descriptor), path,
        how == Open::kExclusive ? RealFile::Writeback::kEarly : RealFile::Writeback::kLazy);
  }

  Result<std::optional<FileInfo>> stat(const Path& path) override {
    struct stat raw {};
    if (::lstat(path.c_str(), &raw) < 0) {
      if (errno == ENOENT || errno == ENOTDIR) return std::optional<FileInfo>();
      return failed("stat", path);
    }
    FileInfo info;
    info.kind = kind_of(raw.st_mode);
    info.size_bytes = static_cast<std::uint64_t>(raw.st_size);
    info.mode = raw.st_mode & 07777u;
    info.links = raw.st_nlink;
    info.inode = raw.st_ino;
    info.modified = WallTime(std::chrono::duration_cast<WallTime::duration>(
        std::chrono::seconds(raw.st_mtim.tv_sec) + std::chrono::nanoseconds(raw.st_mtim.tv_nsec)));
    return std::optional<FileInfo>(info);
  }

  Result<std::vector<std::string>> list(const Path& directory) override {
    Descriptor descriptor(retry([&] {
      return ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }));
    if (!descriptor.ok()) return failed("list", directory);
    DIR* stream = ::fdopendir(descriptor.get());
    if (stream == nullptr) return failed("list", directory);
    descriptor.release();
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(stream)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      errno = 0;
    }
    const int number = errno;
    ::closedir(stream);
    if (number != 0) return errno_error(number, "list " + directory.string());
    std::sort(names.begin(), names.end());
    return names;
  }

  Status make_directories(const Path& path, std::uint32_t mode) override {
    if (::mkdir(path.c_str(), static_cast<mode_t>(mode)) == 0) return {};
    if (errno == ENOENT && path.has_parent_path() && path.parent_path() != path) {
      TRY_VOID(make_directories(path.parent_path(), mode));
      if (::mkdir(path.c_str(), static_cast<mode_t>(mode)) == 0) return {};
    }
    if (errno != EEXIST) return failed("make directory", path);
    struct stat raw {};
    if (::stat(path.c_str(), &raw) < 0) return failed("make directory", path);
    if (!S_ISDIR(raw.st_mode))
      return Error(Code::kAlreadyExists,
                   "make directory " + path.string() + ": a file is in the way");
    return {};
  }

  Status rename(const Path& from, const Path& to) override {
    if (::rename(from.c_str(), to.c_str()) < 0)
      return failed("rename " + from.string() + " to", to);
    return {};
  }

  Status link(const Path& existing, const Path& name) override {
    if (::linkat(AT_FDCWD, existing.c_str(), AT_FDCWD, name.c_str(), 0) < 0)
      return failed("link " + existing.string() + " as", name);
    return {};
  }

  Status symlink(const std::string& target, const Path& name) override {
    if (::symlink(target.c_str(), name.c_str()) < 0) return failed("symlink", name);
    return {};
  }

  Result<std::string> read_link(const Path& path) override {
    std::string target(4096, '\0');
    const ssize_t count = ::readlink(path.c_str(), target.data(), target.size());
    if (count < 0) return failed("read link", path);
    target.resize(static_cast<std::size_t>(count));
    return target;
  }

  Status remove(const Path& path) override {
    if (::unlinkat(AT_FDCWD, path.c_str(), 0) == 0 || errno == ENOENT || errno == ENOTDIR)
      return {};
    if (errno != EISDIR && errno != EPERM) return failed("remove", path);
    if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return {};
    return failed("remove", path);
  }

  Status remove_all(const Path& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) return errno_error(error.value(), "remove " + path.string());
    return {};
  }

  Status set_mode(const Path& path, std::uint32_t mode) override {
    if (::fchmodat(AT_FDCWD, path.c_str(), static_cast<mode_t>(mode), AT_SYMLINK_NOFOLLOW) < 0)
      return failed("set mode of", path);
    return {};
  }

  Status set_group(const Path& path, std::uint32_t group) override {
    if (::fchownat(AT_FDCWD, path.c_str(), static_cast<uid_t>(-1), group, AT_SYMLINK_NOFOLLOW) < 0)
      return failed("set group of", path);
    return {};
  }

  Status sync_directory(const Path& path) override {
    const Path directory = path.empty() ? Path(".") : path;
    Descriptor descriptor(
        retry([&] { return ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (!descriptor.ok()) return failed("sync", directory);
    if (retry([&] { return ::fsync(descriptor.get()); }) < 0) return failed("sync", directory);
    return {};
  }

  Result<Space> space(const Path& path) override {
    struct statvfs raw {};
    if (::statvfs(path.c_str(), &raw) < 0) return failed("space of", path);
    return Space{.capacity_bytes = std::uint64_t{raw.f_blocks} * raw.f_frsize,
                 .available_bytes = std::uint64_t{raw.f_bavail} * raw.f_frsize};
  }

  Status allocate(const Path& path, std::uint64_t bytes, std::uint32_t mode) override {
    constexpr int kFlags = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
    Descriptor descriptor(
        retry([&] { return ::open(path.c_str(), kFlags, static_cast<mode_t>(mode)); }));
    if (!descriptor.ok()) return failed("open", path);
    const int failure = ::posix_fallocate(descriptor.get(), 0, static_cast<off_t>(bytes));
    if (failure == 0) return {};
    (void)::unlink(path.c_str());
    return errno_error(failure, "allocate " + path.string());
  }
};

}  // namespace

FileSystem& real_file_system() {
  static RealFileSystem fs;
  return fs;
}

}  // namespace varda::os
