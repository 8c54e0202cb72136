#include "os/file_system.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "os/internal/posix.h"

namespace varda::os {
namespace {

using internal::Descriptor;
using internal::errno_error;

constexpr std::uint64_t kReadPiece = 256u << 10;
constexpr std::uint64_t kEndPiece = 4u << 10;  // to see that a file ends

class RealFileLock final : public FileLock {
 public:
  explicit RealFileLock(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}

 private:
  Descriptor descriptor_;
};

std::string pid_written_in(int fd) {
  char text[24] = {};
  const ssize_t count = ::pread(fd, text, sizeof(text) - 1, 0);
  std::string pid;
  for (ssize_t i = 0; i < count && text[i] >= '0' && text[i] <= '9'; ++i) pid += text[i];
  return pid;
}

}  // namespace

Result<std::string> read_file(FileSystem& fs, const Path& path, std::uint64_t max_bytes) {
  TRY(std::unique_ptr<File> file, fs.open(path, Open::kRead));
  TRY(const std::uint64_t size, file->size());  // 0 for files of /proc
  std::string bytes;
  for (;;) {
    // One piece for the whole file, so that a large model is not copied while a text grows.
    const std::uint64_t known = std::min(size, max_bytes);
    const std::uint64_t rest = known - std::min<std::uint64_t>(bytes.size(), known);
    const std::uint64_t wanted = size == 0 ? kReadPiece : std::max(rest, kEndPiece);
    TRY(std::string piece, file->read(static_cast<std::size_t>(wanted)));
    if (piece.empty()) return bytes;
    if (bytes.size() + piece.size() > max_bytes) {
      return Error(Code::kExhausted, "read " + path.string() + ": larger than " +
                                         std::to_string(max_bytes) + " bytes");
    }
    if (bytes.empty()) {
      bytes = std::move(piece);
    } else {
      bytes += piece;
    }
  }
}

namespace {

constexpr std::string_view kScratchMark = ".tmp";

// "NAME.tmp4711-3": process 4711, counter 3.
bool scratch_name(std::string_view name) {
  const auto mark = name.rfind(kScratchMark);
  if (mark == std::string_view::npos || mark == 0) return false;
  const std::string_view numbers = name.substr(mark + kScratchMark.size());
  const auto dash = numbers.find('-');
  const auto digits = [](std::string_view text) {
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  return dash != std::string_view::npos && digits(numbers.substr(0, dash)) &&
         digits(numbers.substr(dash + 1));
}

}  // namespace

Status remove_leftovers(FileSystem& fs, const Path& directory) {
  TRY(const auto existing, fs.stat(directory));
  if (!existing || existing->kind == FileKind::kFile || existing->kind == FileKind::kOther)
    return {};
  // With the dot, `directory` may be a link; list() itself follows no links.
  TRY(const std::vector<std::string> names, fs.list(directory / "."));
  for (const std::string& name : names) {
    if (!scratch_name(name)) continue;
    TRY(const auto info, fs.stat(directory / name));
    if (info && info->kind == FileKind::kFile) TRY_VOID(fs.remove(directory / name));
  }
  return {};
}

Status write_file_atomically(FileSystem& fs, const Path& path, std::string_view bytes,
                             std::uint32_t mode) {
  // Unique in this process; a leftover of a crashed process with the same pid is overwritten.
  static std::atomic<std::uint64_t> counter{0};
  Path scratch = path;
  scratch += std::string(kScratchMark) + std::to_string(::getpid()) + "-" +
             std::to_string(counter.fetch_add(1));
  const auto write = [&]() -> Status {
    TRY(std::unique_ptr<File> file, fs.open(scratch, Open::kTruncate, mode));
    TRY_VOID(file->write(bytes));
    return file->sync();
  };
  Status written = write();
  if (written.ok()) written = fs.rename(scratch, path);
  if (!written.ok()) {
    (void)fs.remove(scratch);
    return written;
  }
  return fs.sync_directory(path.parent_path());
}

Result<std::unique_ptr<FileLock>> FileLock::acquire(const Path& path) {
  Descriptor descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!descriptor.ok()) return errno_error(errno, "lock " + path.string());
  if (internal::retry([&] { return ::flock(descriptor.get(), LOCK_EX | LOCK_NB); }) < 0) {
    if (errno != EWOULDBLOCK) return errno_error(errno, "lock " + path.string());
    const std::string pid = pid_written_in(descriptor.get());
    return Error(Code::kUnavailable, path.string() + " is held by " +
                                         (pid.empty() ? "another process" : "process " + pid));
  }
  // The pid is only for people, so a failure to write it is ignored.
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(descriptor.get(), 0) == 0)
    (void)!::pwrite(descriptor.get(), pid.data(), pid.size(), 0);
  return std::make_unique<RealFileLock>(std::move(descriptor));
}

}  // namespace varda::os
