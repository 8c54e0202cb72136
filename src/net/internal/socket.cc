#include "net/internal/socket.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.h"

namespace varda::net::internal {
namespace {

// Thousands of nodes may reconnect at the same moment. A refused node retries after one second,
// then after three. The kernel's own limit (net.core.somaxconn) is 4096 too.
constexpr int kBacklog = 4096;

void set_option(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof(value));
}

Error failed(const Address& address, const char* what, int error) {
  return Error(Code::kUnavailable,
               std::string(what) + " " + address.str() + ": " + std::strerror(error));
}

}  // namespace

void Fd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Result<Address> Address::unix_path(const std::string& path) {
  Address address;
  auto* name = reinterpret_cast<sockaddr_un*>(&address.storage);
  if (path.empty() || path.size() >= sizeof(name->sun_path)) {
    return Error(Code::kInvalid, "a Unix socket's path has 1 to " +
                                     std::to_string(sizeof(name->sun_path) - 1) +
                                     " bytes: " + path);
  }
  name->sun_family = AF_UNIX;
  std::memcpy(name->sun_path, path.data(), path.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  return address;
}

Result<Address> Address::parse(const std::string& text) {
  if (text.starts_with("unix:")) return unix_path(text.substr(5));
  const auto fail = [&] {
    return Error(Code::kInvalid,
                 "address \"" + text + "\": expected HOST:PORT with a numeric host, or unix:/path");
  };
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) return fail();
  const int port = parse_integer<int>(std::string_view(text).substr(colon + 1)).value_or(-1);
  if (port < 0 || port > 65535) return fail();
  std::string host = text.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  if (host.empty()) host = "0.0.0.0";
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<std::uint16_t>(port));
    address.size = sizeof(*v4);
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<std::uint16_t>(port));
    address.size = sizeof(*v6);
  } else {
    return fail();
  }
  return address;
}

std::string Address::str() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr, text,
              sizeof(text));
    return std::string(text) + ":" + std::to_string(port());
  }
  if (storage.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr, text,
              sizeof(text));
    return "[" + std::string(text) + "]:" + std::to_string(port());
  }
  // The peer of a Unix socket has no name.
  if (size <= offsetof(sockaddr_un, sun_path)) return "unix";
  return std::string("unix:") + reinterpret_cast<const sockaddr_un*>(&storage)->sun_path;
}

int Address::port() const {
  if (storage.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  if (storage.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  return 0;
}

Result<Fd> listen_on(const Address& address) {
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return failed(address, "cannot listen on", errno);
  if (address.is_unix()) {
    // A left-over file refuses connections. A live server accepts them and keeps its file.
    const char* path = reinterpret_cast<const sockaddr_un*>(&address.storage)->sun_path;
    Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (::connect(probe.get(), address.get(), address.size) != 0 && errno == ECONNREFUSED)
      ::unlink(path);
  } else {
    set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (address.storage.ss_family == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  }
  if (::bind(fd.get(), address.get(), address.size) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return failed(address, "cannot listen on", errno);
  }
  return fd;
}

Result<Fd> start_connect(const Address& address) {
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return failed(address, "cannot connect to", errno);
  if (!address.is_unix()) set_no_delay(fd.get());
  if (::connect(fd.get(), address.get(), address.size) != 0 && errno != EINPROGRESS) {
    return failed(address, "cannot connect to", errno);
  }
  return fd;
}

int socket_error(int fd) {
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

Address local_address(int fd) {
  Address address;
  address.size = sizeof(address.storage);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size);
  return address;
}

Fd accept_one(int listener, Address& peer) {
  while (true) {
    peer.size = sizeof(peer.storage);
    Fd fd(::accept4(listener, reinterpret_cast<sockaddr*>(&peer.storage), &peer.size,
                    SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd || (errno != EINTR && errno != ECONNABORTED)) return fd;
  }
}

void set_no_delay(int fd) { set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1); }

void set_keepalive(int fd) {
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

void set_dead_after(int fd, std::chrono::seconds silence) {
  const int seconds = static_cast<int>(std::max<std::chrono::seconds::rep>(2, silence.count()));
  // On an idle connection the first probe is sent at half the time, then two more before the end.
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, seconds / 2));
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / 4));
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 2);
  // Limits unacknowledged bytes, which the kernel otherwise resends for about 15 minutes.
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, seconds * 1000);
}

int bytes_waiting(int fd) {
  int count = 0;
  return ::ioctl(fd, FIONREAD, &count) == 0 ? count : 0;
}

}  // namespace varda::net::internal
