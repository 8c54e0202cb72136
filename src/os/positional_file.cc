#include "os/positional_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace varda::os {
namespace {

class DescriptorFile final : public PositionalFile {
 public:
  DescriptorFile(int fd, std::uint64_t size, std::string path)
      : fd_(fd), size_(size), path_(std::move(path)) {}
  ~DescriptorFile() override { ::close(fd_); }
  std::uint64_t size() const override { return size_; }
  Status read(std::uint64_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      const ssize_t count = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Error(Code::kUnavailable, path_ + ": " + std::strerror(errno));
      if (count == 0)
        return Error(Code::kCorrupt, path_ + ": the file ends at " + std::to_string(offset));
      offset += static_cast<std::uint64_t>(count);
      out = out.subspan(static_cast<std::size_t>(count));
    }
    return {};
  }

 private:
  const int fd_;
  const std::uint64_t size_;
  const std::string path_;
};

class BytesFile final : public PositionalFile {
 public:
  explicit BytesFile(std::string bytes) : bytes_(std::move(bytes)) {}
  std::uint64_t size() const override { return bytes_.size(); }
  Status read(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset)
      return Error(Code::kCorrupt, "the file ends at " + std::to_string(bytes_.size()));
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }
  std::span<const std::byte> bytes() const override {
    return std::as_bytes(std::span(bytes_.data(), bytes_.size()));
  }

 private:
  const std::string bytes_;
};

}  // namespace

Result<std::shared_ptr<const PositionalFile>> PositionalFile::open(FileSystem& fs,
                                                                   const Path& path) {
  if (&fs != &real_file_system()) {
    TRY(std::string bytes, read_file(fs, path, UINT64_MAX));
    return of(std::move(bytes));
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  struct stat facts {};
  if (fd < 0 || ::fstat(fd, &facts) != 0) {
    const int number = errno;
    if (fd >= 0) ::close(fd);
    return Error(number == ENOENT ? Code::kNotFound : Code::kUnavailable,
                 path.string() + ": " + std::strerror(number));
  }
  std::shared_ptr<const PositionalFile> out = std::make_shared<DescriptorFile>(
      fd, static_cast<std::uint64_t>(facts.st_size), path.string());  // closes
  if (!S_ISREG(facts.st_mode)) return Error(Code::kInvalid, path.string() + ": not a regular file");
  return out;
}

std::shared_ptr<const PositionalFile> PositionalFile::of(std::string bytes) {
  return std::make_shared<BytesFile>(std::move(bytes));
}

}  // namespace varda::os
