#include "runtime/testing/misbehaving_server.h"

#include <algorithm>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "base/check.h"

namespace varda::runtime {
namespace {

/// False: the peer closed.
bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::string chunk(std::string_view bytes) {
  char size[32];
  std::snprintf(size, sizeof(size), "%zx\r\n", bytes.size());
  return size + std::string(bytes) + "\r\n";
}

}  // namespace

std::string http_answer(int status, const std::string& body, const std::string& type,
                        const std::string& more_headers) {
  return "HTTP/1.1 " + std::to_string(status) + " x\r\nContent-Type: " + type + "\r\n" +
         more_headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

MisbehavingServer::MisbehavingServer(net::HttpClient& real, std::vector<Fault> faults)
    : real_(real), faults_(faults.begin(), faults.end()) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  CHECK(::listen(listener_, 64) == 0);
  socklen_t size = sizeof(address);
  CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::jthread([this] {
    while (true) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      const std::lock_guard lock(mutex_);
      open_.push_back(fd);
      threads_.emplace_back([this, fd] { serve(fd); });
    }
  });
}

MisbehavingServer::~MisbehavingServer() {
  stop_.request_stop();
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  ::close(listener_);
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
  }
  threads_.clear();  // no thread is added any more
}

std::string MisbehavingServer::url() const { return "http://127.0.0.1:" + std::to_string(port_); }

bool MisbehavingServer::done() const {
  const std::lock_guard lock(mutex_);
  return faults_.empty();
}

std::optional<Fault> MisbehavingServer::next(Fault::On on) {
  const std::lock_guard lock(mutex_);
  if (faults_.empty() || faults_.front().on != on) return std::nullopt;
  Fault fault = std::move(faults_.front());
  faults_.pop_front();
  return fault;
}

void MisbehavingServer::serve(int fd) {
  std::string text;
  char buffer[4096];
  while (true) {
    const auto end = text.find("\r\n\r\n");
    if (end == std::string::npos) {
      const ssize_t got = ::recv(fd, buffer, sizeof(buffer), 0);
      if (got <= 0) break;
      text.append(buffer, static_cast<std::size_t>(got));
      continue;
    }
    const auto space = text.find(' ');
    const std::string method = text.substr(0, space);
    const std::string target = text.substr(space + 1, text.find(' ', space + 1) - space - 1);
    text.erase(0, end + 4);
    if (!answer(fd, method, target)) break;
  }
  const std::lock_guard lock(mutex_);
  std::erase(open_, fd);
  ::close(fd);
}

/// False: the connection ends here.
bool MisbehavingServer::answer(int fd, const std::string& method, const std::string& target) {
  const bool watch = target.find("watch=true") != std::string::npos;
  const std::optional<Fault> fault = next(watch ? Fault::On::kWatch : Fault::On::kList);
  if (fault && fault->what == Fault::What::kSend) {
    (void)send_all(fd, fault->bytes);
    return false;
  }
  const Context ctx(stop_.get_token());
  if (watch) {
    auto response = real_.send(ctx, {.method = method, .url = target, .headers = {}, .body = ""});
    if (!response.ok()) return false;
    if (response->status != 200) return send_all(fd, http_answer(response->status, "{}"));
    if (!send_all(fd,
                  "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: "
                  "chunked\r\n\r\n"))
      return false;
    stream(fd, *response->body, fault ? &*fault : nullptr);
    return false;
  }
  const auto whole = real_.call(ctx, {.method = method, .url = target, .headers = {}, .body = ""});
  if (!whole.ok()) return false;
  const std::string text = http_answer(whole->status, whole->body);
  if (!fault) return send_all(fd, text);
  if (fault->what == Fault::What::kCut) {
    (void)send_all(fd, std::string_view(text).substr(0, fault->count));
    return false;
  }
  for (const char byte : text) {
    if (!send_all(fd, {&byte, 1})) return false;
  }
  return true;
}

void MisbehavingServer::stream(int fd, net::BodyReader& body, const Fault* fault) {
  std::string text;
  std::size_t events = 0;
  while (true) {
    if (fault && fault->what == Fault::What::kEvents && events >= fault->count) {
      (void)send_all(fd, fault->bytes);
      return;
    }
    const auto end = text.find('\n');
    if (end == std::string::npos) {
      auto more = body.read();
      if (!more.ok()) return;
      if (!*more) {
        (void)send_all(fd, "0\r\n\r\n");
        return;
      }
      text += **more;
      continue;
    }
    const std::string framed = chunk(std::string_view(text).substr(0, end + 1));
    text.erase(0, end + 1);
    ++events;
    const std::size_t step = fault && fault->what == Fault::What::kDribble ? 1 : framed.size();
    for (std::size_t at = 0; at < framed.size(); at += step) {
      if (!send_all(fd, std::string_view(framed).substr(at, step))) return;
    }
  }
}

}  // namespace varda::runtime
