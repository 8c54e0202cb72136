// A file mapped into memory for reading.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace varda_plugins {

/// The destructor unmaps the file.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat facts {};
    if (fd < 0 || ::fstat(fd, &facts) != 0) {
      problem_ = std::strerror(errno);
    } else if (!S_ISREG(facts.st_mode)) {
      problem_ = "not a regular file";
    } else if (facts.st_size > 0) {
      size_ = static_cast<std::size_t>(facts.st_size);
      at_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
      if (at_ == MAP_FAILED) problem_ = std::strerror(errno);
    }
    if (fd >= 0) ::close(fd);
  }
  ~MappedFile() {
    if (size_ > 0 && at_ != MAP_FAILED) ::munmap(at_, size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& problem() const { return problem_; }  // "": mapped
  std::string_view bytes() const {
    return size_ == 0 ? std::string_view() : std::string_view(static_cast<const char*>(at_), size_);
  }

 private:
  void* at_ = nullptr;
  std::size_t size_ = 0;
  std::string problem_;
};

}  // namespace varda_plugins
