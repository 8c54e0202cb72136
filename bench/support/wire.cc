#include "support/wire.h"

#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace varda::bench {
namespace {

// The certificate is not verified: only encryption matters for the figures.
SSL_CTX* tls_context() {
  static SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  return context;
}

constexpr std::size_t kLeastRoom = 64 << 10;

}  // namespace

void die(const std::string& what) {
  std::fprintf(stderr, "bench: %s\n", what.c_str());
  std::exit(1);
}

Wire::Wire(int port, Security security)
    : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), buffer_(kLeastRoom, '\0') {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    die("cannot connect");
  const int one = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (security == Security::kPlain) return;
  ssl_ = SSL_new(tls_context());
  SSL_set_fd(ssl_, fd_);
  if (SSL_connect(ssl_) != 1) die("TLS handshake failed");
}

Wire::~Wire() {
  SSL_free(ssl_);
  ::close(fd_);
}

void Wire::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto count = ssl_ != nullptr
                           ? SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()))
                           : ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) die("cannot send");
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

std::size_t Wire::read(char* into, std::size_t size) {
  for (;;) {
    const auto count =
        ssl_ != nullptr ? SSL_read(ssl_, into, static_cast<int>(size)) : ::recv(fd_, into, size, 0);
    if (count > 0) return static_cast<std::size_t>(count);
    if (count < 0 && errno == EINTR) continue;
    die("the server closed the connection");
  }
}

std::string_view Wire::some() { return {buffer_.data(), read(buffer_.data(), buffer_.size())}; }

std::string_view Wire::receive(int status) {
  filled_ = 0;
  std::size_t header = std::string::npos;
  std::size_t wanted = 0;
  while (header == std::string::npos || filled_ < wanted) {
    if (filled_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
    filled_ += read(buffer_.data() + filled_, buffer_.size() - filled_);
    const std::string_view all(buffer_.data(), filled_);
    if (header != std::string::npos) continue;
    header = all.find("\r\n\r\n");
    if (header == std::string::npos) continue;
    int code = 0;
    std::from_chars(all.data() + 9, all.data() + 12, code);
    if (code != status) die("expected status " + std::to_string(status) + ": " + std::string(all));
    constexpr std::string_view kLength =
        "\r\nContent-Length: ";  // no other header's name ends like this
    const std::size_t at = all.find(kLength);
    if (at == std::string::npos || at > header) die("no Content-Length: " + std::string(all));
    std::size_t length = 0;
    std::from_chars(all.data() + at + kLength.size(), all.data() + header, length);
    wanted = header + 4 + length;
    if (buffer_.size() < wanted) buffer_.resize(wanted);
  }
  if (filled_ != wanted) die("more than one response");
  return {buffer_.data() + header + 4, wanted - header - 4};
}

std::string request(std::string_view method, std::string_view path, std::string_view token,
                    std::string_view body) {
  std::string out;
  out.append(method).append(" ").append(path).append(
      " HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n");
  if (!token.empty()) out.append("Authorization: Bearer ").append(token).append("\r\n");
  if (!body.empty())
    out.append("Content-Type: application/json\r\nContent-Length: ")
        .append(std::to_string(body.size()))
        .append("\r\n");
  return out.append("\r\n").append(body);
}

}  // namespace varda::bench
