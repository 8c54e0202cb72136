#include "net/testing/raw_socket.h"

#include <arpa/inet.h>
#include <atomic>
#include <cstring>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/check.h"

namespace varda::net::testing {

RawSocket::RawSocket(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
}

RawSocket::RawSocket(const std::string& unix_path)
    : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  CHECK(unix_path.size() < sizeof(address.sun_path));
  std::memcpy(address.sun_path, unix_path.data(), unix_path.size());
  CHECK(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
}

RawSocket::~RawSocket() {
  if (fd_ >= 0) ::close(fd_);
}

void RawSocket::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

std::string RawSocket::read_until(std::string_view text, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  std::string got;
  while (!closed_ && (text.empty() || got.find(text) == std::string::npos)) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    pollfd polled{fd_, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&polled, 1, static_cast<int>(left.count())) <= 0) break;
    char bytes[65536];
    const ssize_t count = ::recv(fd_, bytes, sizeof(bytes), 0);
    if (count <= 0) closed_ = true;
    if (count > 0) got.append(bytes, static_cast<std::size_t>(count));
  }
  return got;
}

std::string RawSocket::read_all(std::chrono::milliseconds limit) { return read_until("", limit); }

void RawSocket::finish_writing() { ::shutdown(fd_, SHUT_WR); }

void RawSocket::reset() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  ::close(std::exchange(fd_, -1));
  closed_ = true;
}

void RawSocket::write_urgent(char byte) {
  CHECK(::send(fd_, &byte, 1, MSG_OOB | MSG_NOSIGNAL) == 1);
}

struct CannedServer::State {
  int listener = -1;
  std::string answer;
  std::thread thread;

  void serve() {
    while (true) {
      const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      std::string request;
      char bytes[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t count = ::recv(fd, bytes, sizeof(bytes), 0);
        if (count <= 0) break;
        request.append(bytes, static_cast<std::size_t>(count));
      }
      ::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
      ::close(fd);
    }
  }
};

CannedServer::CannedServer(std::string answer) : state_(std::make_unique<State>()) {
  state_->answer = std::move(answer);
  state_->listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::bind(state_->listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  CHECK(::listen(state_->listener, 16) == 0);
  socklen_t size = sizeof(address);
  ::getsockname(state_->listener, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  state_->thread = std::thread([state = state_.get()] { state->serve(); });
}

CannedServer::~CannedServer() {
  ::shutdown(state_->listener, SHUT_RDWR);
  state_->thread.join();
  ::close(state_->listener);
}

}  // namespace varda::net::testing
