#include "os/mapped_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace varda::os {
namespace {

class MappedPages final : public MappedFile {
 public:
  MappedPages(void* at, std::size_t size) : at_(static_cast<std::byte*>(at)), size_(size) {}
  ~MappedPages() override { ::munmap(at_, size_); }
  std::span<const std::byte> bytes() const override { return {at_, size_}; }
  void release(std::size_t offset, std::size_t size) const override {
    if (offset >= size_) return;
    // Only whole pages inside the range: its neighbours may be in use.
    static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t first = (offset + page - 1) / page * page;
    const std::size_t end = (offset + std::min(size, size_ - offset)) / page * page;
    if (end > first) ::madvise(at_ + first, end - first, MADV_DONTNEED);
  }

 private:
  std::byte* const at_;
  const std::size_t size_;
};

class CopiedFile final : public MappedFile {
 public:
  explicit CopiedFile(std::string bytes) : bytes_(std::move(bytes)) {}
  std::span<const std::byte> bytes() const override {
    return std::as_bytes(std::span(bytes_.data(), bytes_.size()));
  }
  void release(std::size_t /*offset*/, std::size_t /*size*/) const override {}

 private:
  const std::string bytes_;
};

Error failure(const Path& path) {
  const int number = errno;
  return Error(number == ENOENT ? Code::kNotFound : Code::kUnavailable,
               path.string() + ": " + std::strerror(number));
}

Result<std::shared_ptr<const MappedFile>> map(const Path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return failure(path);
  struct stat facts {};
  std::shared_ptr<const MappedFile> out;
  std::optional<Error> problem;
  if (::fstat(fd, &facts) != 0) {
    problem = failure(path);
  } else if (!S_ISREG(facts.st_mode)) {
    problem = Error(Code::kInvalid, path.string() + ": not a regular file");
  } else if (facts.st_size == 0) {
    out = std::make_shared<CopiedFile>("");  // mmap() refuses empty files
  } else {
    const auto size = static_cast<std::size_t>(facts.st_size);
    void* const at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
      problem = failure(path);
    else
      out = std::make_shared<MappedPages>(at, size);
  }
  ::close(fd);
  if (problem) return std::move(*problem);
  return out;
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(FileSystem& fs, const Path& path) {
  if (&fs == &real_file_system()) return map(path);
  TRY(std::string bytes, read_file(fs, path, UINT64_MAX));
  return std::shared_ptr<const MappedFile>(std::make_shared<CopiedFile>(std::move(bytes)));
}

}  // namespace varda::os
