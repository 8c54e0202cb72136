// Sockets and numeric addresses: "host:port", "[v6]:port", "unix:/path".
#pragma once

#include <chrono>
#include <string>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "base/result.h"

namespace varda::net::internal {

/// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~Fd() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;

  /// kInvalid explains the problem. "localhost" means 127.0.0.1, an empty host means every address.
  static Result<Address> parse(const std::string& text);
  static Result<Address> unix_path(const std::string& path);
  std::string str() const;
  int port() const;  // 0 for Unix sockets
  bool is_unix() const { return storage.ss_family == AF_UNIX; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// Returns a bound, listening, non-blocking socket. Replaces the file of a Unix socket that has no
/// listener. kUnavailable: in use, or not an address of this machine.
Result<Fd> listen_on(const Address& address);
/// Starts a connection. It is done or failed when the socket is writable; see socket_error(). An
/// error: it failed at once.
Result<Fd> start_connect(const Address& address);
/// Reads and clears SO_ERROR.
int socket_error(int fd);
Address local_address(int fd);
/// Accepts one waiting connection, non-blocking, and sets `peer`. Empty: none waits, or no
/// descriptor is left (see errno).
Fd accept_one(int listener, Address& peer);
void set_no_delay(int fd);
/// Finds a dead peer within 30 s.
void set_keepalive(int fd);
/// Call after set_keepalive(). Closes the connection if the peer acknowledges neither bytes nor
/// probes for this long.
void set_dead_after(int fd, std::chrono::seconds silence);
/// Bytes received and not read yet.
int bytes_waiting(int fd);

}  // namespace varda::net::internal
