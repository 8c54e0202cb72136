#include "net/grpc_client.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "net/grpc_status.h"
#include "net/internal/dial.h"
#include "net/internal/http2_call.h"
#include "net/internal/socket.h"

namespace varda::net {
namespace {

using internal::Fd;
using internal::GrpcAnswer;
using internal::Http2Call;
using internal::Waiter;

constexpr std::size_t kPrefixBytes = 5;

struct PooledConnection {
  Fd fd;
  Waiter waiter;
  std::unique_ptr<Http2Call> http;
};

/// Reads and feeds the available bytes. False: the peer closed.
Result<bool> receive(PooledConnection& connection) {
  std::array<char, 16384> piece{};
  const ssize_t count = ::recv(connection.fd.get(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (count == 0) return false;
  if (count < 0) {
    if (errno == EAGAIN || errno == EINTR) return true;
    return Error(Code::kUnavailable, std::strerror(errno));
  }
  TRY_VOID(connection.http->feed({piece.data(), static_cast<std::size_t>(count)}));
  return true;
}

class Client final : public GrpcClient {
 public:
  explicit Client(GrpcClientOptions options) : options_(std::move(options)) {}

  Result<std::string> call(const Context& ctx, std::string_view method,
                           std::string_view message) override {
    TRY_VOID(ctx.check());
    for (std::unique_ptr<PooledConnection> pooled = take(); pooled; pooled = take()) {
      bool untouched = false;
      Result<std::string> answer = exchange(ctx, std::move(pooled), method, message, untouched);
      if (!untouched) return answer;
      // The server closed the connection while it was in the pool.
    }
    for (int attempt = 0;; ++attempt) {
      bool untouched = false;
      TRY(std::unique_ptr<PooledConnection> connection, connect(ctx));
      Result<std::string> answer = exchange(ctx, std::move(connection), method, message, untouched);
      if (answer.ok() || !untouched || attempt > 0) return answer;
    }
  }

 private:
  Result<std::unique_ptr<PooledConnection>> connect(const Context& ctx) {
    auto connection = std::make_unique<PooledConnection>();
    connection->waiter.attach(ctx.stop_token());
    TRY(const internal::Address address, options_.address.empty()
                                             ? internal::Address::unix_path(options_.unix_socket)
                                             : internal::Address::parse(options_.address));
    const Context limited = ctx.with_timeout(options_.connect_timeout);
    auto fd = internal::connect_any(limited, connection->waiter, {address});
    if (!fd.ok()) {
      TRY_VOID(ctx.check());
      return Error(Code::kUnavailable, fd.error().message());
    }
    connection->fd = std::move(fd).value();
    if (!address.is_unix()) internal::set_no_delay(connection->fd.get());
    connection->http = Http2Call::create(options_.message_bytes_max + kPrefixBytes);
    return connection;
  }

  // First handles bytes that arrived while the connection was idle (a PING, a GOAWAY, the end).
  std::unique_ptr<PooledConnection> take() {
    while (true) {
      std::unique_ptr<PooledConnection> connection;
      {
        MutexLock lock(mutex_);
        if (idle_.empty()) return nullptr;
        connection = std::move(idle_.back());
        idle_.pop_back();
      }
      const Result<bool> open = receive(*connection);
      if (open.ok() && *open && connection->http->reusable()) return connection;
    }
  }

  void give(std::unique_ptr<PooledConnection> connection) {
    connection->waiter.detach();
    if (!connection->http->reusable()) return;
    MutexLock lock(mutex_);
    if (idle_.size() < options_.idle_connections_max) idle_.push_back(std::move(connection));
  }

  const std::string& peer() const {
    return options_.address.empty() ? options_.unix_socket : options_.address;
  }

  Error broken(const std::string& what) const {
    return Error(Code::kUnavailable, peer() + ": " + what);
  }

  /// `untouched`: the server has not processed the call, so it may be retried.
  Result<std::string> exchange(const Context& ctx, std::unique_ptr<PooledConnection> connection,
                               std::string_view method, std::string_view message, bool& untouched) {
    Http2Call& http = *connection->http;
    connection->waiter.attach(ctx.stop_token());
    std::string timeout;
    if (ctx.deadline()) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*ctx.deadline() -
                                                                              system_clock().now());
      // gRPC allows at most eight digits. Longer deadlines are sent as one day.
      timeout = std::to_string(std::clamp<std::int64_t>(left.count(), 1, 86'400'000)) + "m";
    }
    const Status begun = http.begin({.method = method, .timeout = timeout, .message = message});
    if (!begun.ok()) {
      untouched = true;
      return broken(begun.error().message());
    }
    std::string unsent;
    bool written = false;  // the whole request is written, so the server may have begun
    int closed = 0;        // the server reads no more, but its answer may have arrived before
    while (!http.done()) {
      if (const Status more = refill(http, unsent); !more.ok())
        return broken(more.error().message());
      if (closed != 0) unsent.clear();
      const ssize_t sent = unsent.empty() ? 0
                                          : ::send(connection->fd.get(), unsent.data(),
                                                   unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) {
        closed = errno;
        unsent.clear();
      } else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        untouched = !written;
        return broken(std::strerror(errno));
      }
      if (sent > 0) {
        unsent.erase(0, static_cast<std::size_t>(sent));
        if (unsent.empty()) continue;  // output() may have more
      }
      written = written || (unsent.empty() && closed == 0);
      const Status ready = connection->waiter.wait(
          ctx, connection->fd.get(), unsent.empty() ? Waiter::For::kRead : Waiter::For::kEither);
      // Giving up closes the connection, so the server learns that the client stopped waiting.
      if (!ready.ok()) return ready.error().context(std::string(method));
      const Result<bool> open = receive(*connection);
      if (open.ok() && *open) continue;
      untouched = !written;
      if (!open.ok()) return broken(open.error().message());
      return broken(closed != 0 ? std::strerror(closed) : "the connection ended before the answer");
    }
    // The peer may wait for an acknowledgement or for the end of our stream.
    if (const Status refilled = refill(http, unsent); refilled.ok() && !unsent.empty()) {
      const ssize_t sent =
          ::send(connection->fd.get(), unsent.data(), unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent == static_cast<ssize_t>(unsent.size())) unsent.clear();
    }
    GrpcAnswer answer = http.take();
    untouched = answer.refused;
    if (unsent.empty()) give(std::move(connection));
    return result_of(std::move(answer));
  }

  static Status refill(Http2Call& http, std::string& unsent) {
    while (unsent.size() < (64u << 10)) {
      TRY(const std::string_view more, http.output());
      if (more.empty()) break;
      unsent += more;
    }
    return {};
  }

  Result<std::string> result_of(GrpcAnswer answer) const {
    if (answer.too_large) {
      return Error(Code::kExhausted, peer() + ": the answer is larger than " +
                                         std::to_string(options_.message_bytes_max) + " bytes");
    }
    if (answer.grpc_status > 0) {
      return Error(code_of_grpc_status(answer.grpc_status),
                   answer.grpc_message.empty() ? std::string(grpc_status_name(answer.grpc_status))
                                               : answer.grpc_message);
    }
    if (answer.grpc_status < 0) {
      if (answer.reset != 0)
        return broken("the call was reset with HTTP/2 error " + std::to_string(answer.reset));
      return broken("no gRPC answered, but HTTP status " + std::to_string(answer.http_status) +
                    " with content type \"" + answer.content_type + "\"");
    }
    const auto byte = [&](std::size_t i) {
      return static_cast<std::size_t>(static_cast<unsigned char>(answer.body[i]));
    };
    if (answer.body.size() < kPrefixBytes) return broken("the answer is incomplete");
    if (byte(0) != 0) return broken("the answer is compressed, which was not requested");
    const std::size_t size = byte(1) << 24 | byte(2) << 16 | byte(3) << 8 | byte(4);
    if (answer.body.size() != kPrefixBytes + size) return broken("the answer is not one message");
    return answer.body.substr(kPrefixBytes);
  }

  const GrpcClientOptions options_;
  Mutex mutex_;
  std::vector<std::unique_ptr<PooledConnection>> idle_ GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<GrpcClient> make_grpc_client(GrpcClientOptions options) {
  return std::make_unique<Client>(std::move(options));
}

}  // namespace varda::net
