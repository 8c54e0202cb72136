#include "net/tunnel.h"

#include <algorithm>
#include <sys/socket.h>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "net/client.h"
#include "net/internal/tunnel_parts.h"

namespace varda::net {

using internal::IoResult;
using internal::Waiter;

namespace {

Error tunnel_broken(const Tunnel::Parts& parts) {
  const std::string detail = parts.stream->error();
  return Error(Code::kUnavailable,
               parts.peer + ": the connection broke" +
                   (detail.empty() || detail == "Success" ? "" : ": " + detail));
}

/// Waits for the readiness that `kind` asks for.
Status wait_for_tunnel(const Context& ctx, Tunnel::Parts& parts, IoResult::Kind kind) {
  if (!parts.waiter) parts.waiter.emplace();
  parts.waiter->attach(ctx.stop_token());
  Status status = parts.waiter->wait(
      ctx, parts.fd.get(),
      kind == IoResult::Kind::kWantRead ? Waiter::For::kRead : Waiter::For::kWrite);
  parts.waiter->detach();
  return status;
}

bool has_token(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view one = list.substr(0, comma);
    while (!one.empty() && (one.front() == ' ' || one.front() == '\t')) one.remove_prefix(1);
    while (!one.empty() && (one.back() == ' ' || one.back() == '\t')) one.remove_suffix(1);
    if (equal_ignoring_case(one, token)) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

}  // namespace

Tunnel::Tunnel(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) { CHECK(parts_); }
Tunnel::~Tunnel() = default;

Result<std::size_t> Tunnel::read(const Context& ctx, std::span<char> into) {
  if (!parts_->unread.empty()) {
    const std::size_t count = std::min(into.size(), parts_->unread.size());
    std::copy_n(parts_->unread.data(), count, into.data());
    parts_->unread.erase(0, count);
    return count;
  }
  while (true) {
    const IoResult io = parts_->stream->read(into);
    switch (io.kind) {
      case IoResult::Kind::kBytes:
        return io.count;
      case IoResult::Kind::kEnd:
        return std::size_t{0};
      case IoResult::Kind::kError:
        return tunnel_broken(*parts_);
      case IoResult::Kind::kWantRead:
      case IoResult::Kind::kWantWrite:
        TRY_VOID(wait_for_tunnel(ctx, *parts_, io.kind));
    }
  }
}

Status Tunnel::write(const Context& ctx, std::string_view bytes) {
  while (!bytes.empty()) {
    const IoResult io = parts_->stream->write(bytes, {});
    switch (io.kind) {
      case IoResult::Kind::kBytes:
        bytes.remove_prefix(io.count);
        break;
      case IoResult::Kind::kEnd:
      case IoResult::Kind::kError:
        return tunnel_broken(*parts_);
      case IoResult::Kind::kWantRead:
      case IoResult::Kind::kWantWrite:
        TRY_VOID(wait_for_tunnel(ctx, *parts_, io.kind));
    }
  }
  return {};
}

void Tunnel::finish() { parts_->stream->finish(); }
const std::string& Tunnel::peer() const { return parts_->peer; }
std::string_view Tunnel::unread() const { return parts_->unread; }

std::unique_ptr<Tunnel> internal::plain_tunnel(Fd fd, std::string peer) {
  auto parts = std::make_unique<Tunnel::Parts>();
  parts->stream = plain_stream(fd.get());
  parts->fd = std::move(fd);
  parts->peer = std::move(peer);
  return std::make_unique<Tunnel>(std::move(parts));
}

std::pair<std::unique_ptr<Tunnel>, std::unique_ptr<Tunnel>> make_tunnel_pair() {
  int fds[2] = {-1, -1};
  CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
  return {internal::plain_tunnel(internal::Fd(fds[0]), "unix"),
          internal::plain_tunnel(internal::Fd(fds[1]), "unix")};
}

bool wants_upgrade(const Request& request, std::string_view protocol) {
  if (request.method != "GET") return false;
  bool connection = false, named = false;
  for (const auto& [name, value] : request.headers.all()) {
    if (equal_ignoring_case(name, "Connection")) connection |= has_token(value, "upgrade");
    if (equal_ignoring_case(name, "Upgrade")) named |= has_token(value, protocol);
  }
  return connection && named;
}

Response upgrade_response(std::string_view protocol,
                          std::function<void(std::unique_ptr<Tunnel>)> take) {
  Response out;
  out.status = 101;
  out.headers.add("Upgrade", std::string(protocol));
  out.upgrade = std::move(take);
  return out;
}

Result<std::unique_ptr<Tunnel>> TunnelOpener::connect(const Context& ctx,
                                                      const TunnelRequest& request) {
  TRY(TunnelAnswer answer, open(ctx, request));
  if (answer.tunnel) return std::move(answer.tunnel);
  std::string text = answer.body.substr(0, 1024);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const std::string message = "HTTP " + std::to_string(answer.status) + ": " + text;
  switch (answer.status) {
    case 401:
      return Error(Code::kUnauthenticated, message);
    case 403:
      return Error(Code::kForbidden, message);
    case 404:
      return Error(Code::kNotFound, message);
    default:
      return Error(Code::kUnavailable, message);
  }
}

Connector upgrade_connector(ClientOptions reach, std::string url,
                            std::function<Result<Headers>()> headers) {
  const std::shared_ptr<TunnelOpener> opener = make_tunnel_opener(std::move(reach));
  return [opener, url = std::move(url),
          headers = std::move(headers)](const Context& ctx) -> Result<std::unique_ptr<Tunnel>> {
    TunnelRequest request{.url = url, .headers = {}};
    if (headers) {
      TRY(request.headers, headers());
    }
    return opener->connect(ctx, request);
  };
}

}  // namespace varda::net
