// Shared POSIX helpers of this room: owned descriptors, errno as Error.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "base/result.h"

namespace varda::os::internal {

/// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Descriptor() { reset(); }
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

/// "what: No such file or directory", with the matching code.
Error errno_error(int number, std::string_view what);

/// Repeats the call while a signal interrupts it.
template <typename F>
auto retry(F call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace varda::os::internal
