#include "net/grpc_server.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "net/internal/grpc_loop.h"

namespace varda::net {
namespace grpc_server {

using internal::Address;
using internal::Fd;
using internal::GrpcLoop;
using internal::GrpcState;
using internal::Reactor;
using internal::TlsContext;

constexpr std::chrono::milliseconds kRetryAccept{250};
constexpr std::chrono::seconds kIdleWhenFull{1};
constexpr std::chrono::milliseconds kAbortGrace{500};  // for the last frames to clients

/// Accepts connections on the first loop's thread and distributes them.
class Acceptor final : public Reactor::Listener {
 public:
  Acceptor(GrpcState& state, std::vector<std::unique_ptr<GrpcLoop>>& loops, Fd listener)
      : state_(state),
        loops_(loops),
        watch_(loops.front()->reactor().watch(listener.release(), *this)) {}

  void resume() {
    if (watch_) watch_->want_read();
  }
  void close() { watch_.reset(); }

  void on_readable() override {
    if (!watch_) return;
    // A few at a time, so that existing connections get turns in between.
    for (int i = 0; i < 64; ++i) {
      if (state_.connections.load() >= state_.options.connections_max) {
        for (auto& loop : loops_) {
          loop->reactor().post(
              [&loop = *loop] { loop.close_idle(system_clock().now() - kIdleWhenFull); });
        }
        return retry_later();
      }
      Address peer;
      Fd fd = internal::accept_one(watch_->fd(), peer);
      if (!fd) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) break;
        log::warn("cannot accept connection, retrying", {{"error", std::strerror(errno)}});
        return retry_later();
      }
      if (!peer.is_unix()) {
        internal::set_no_delay(fd.get());
        internal::set_keepalive(fd.get());
      }
      const std::string name = peer.str();
      if (!state_.addresses.add(name)) continue;
      state_.connections.fetch_add(1);
      loops_[next_++ % loops_.size()]->adopt(std::move(fd), name);
    }
    watch_->want_read();
  }
  void on_writable() override {}

 private:
  void retry_later() {
    loops_.front()->reactor().tick(kRetryAccept, [this] {
      resume();
      return false;
    });
  }

  GrpcState& state_;
  std::vector<std::unique_ptr<GrpcLoop>>& loops_;
  std::unique_ptr<Reactor::Watch> watch_;
  std::size_t next_ = 0;
};

class GrpcServerImpl final : public GrpcServer {
 public:
  GrpcServerImpl(Options options, GrpcHandler handler, TlsContext tls, const Address& bound,
                 Fd listener)
      : bound_(bound), listens_(listener) {
    state_.options = std::move(options);
    state_.handler = std::move(handler);
    state_.use(std::move(tls));
    state_.addresses.limit(state_.options.connections_per_address_max);
    state_.budget = std::make_shared<internal::ReceiveBudget>(state_.options.received_bytes_max);
    state_.on_closed = [this] {
      const MutexLock lock(mutex_);
      closed_.notify_all();
    };
    for (std::size_t i = 0; i < state_.options.io_threads; ++i)
      loops_.push_back(std::make_unique<GrpcLoop>(state_));
    if (listens_) {
      acceptor_.emplace(state_, loops_, std::move(listener));
      loops_.front()->reactor().post([this] { acceptor_->resume(); });
    }
    for (auto& loop : loops_) loop->start();
  }
  ~GrpcServerImpl() override { stop(std::chrono::milliseconds(0)); }

  std::string address() const override { return listens_ ? bound_.str() : ""; }
  int port() const override { return listens_ ? bound_.port() : 0; }
  std::size_t connections() const override { return state_.connections.load(); }

  Status use_tls(const TlsServer& tls) override {
    if (!state_.options.tls)
      return Error(Code::kInvalid, "a server without TLS has no certificate");
    TRY(TlsContext context, internal::server_context(tls, internal::Protocol::kHttp2));
    state_.use(std::move(context));
    return {};
  }

  void adopt(std::unique_ptr<Tunnel> connection, Peer peer) override {
    if (state_.connections.load() >= state_.options.connections_max || state_.stopping.load() ||
        !state_.addresses.add(peer.address))
      return;
    state_.connections.fetch_add(1);
    loops_[next_.fetch_add(1) % loops_.size()]->adopt(std::move(connection), std::move(peer));
  }

  void drain() override {
    state_.draining.store(true);
    for (auto& loop : loops_) loop->reactor().post([&loop = *loop] { loop.drain(); });
  }

  void stop(std::chrono::milliseconds grace) override {
    std::call_once(stopped_, [&] {
      const SteadyTime until = system_clock().now() + grace;
      state_.stopping.store(true);
      if (acceptor_) loops_.front()->reactor().post([this] { acceptor_->close(); });
      drain();
      wait_until(until);
      for (auto& loop : loops_) loop->reactor().post([&loop = *loop] { loop.abort(); });
      wait_until(std::max(until, system_clock().now() + kAbortGrace));
      for (auto& loop : loops_) loop->stop();
      if (acceptor_) acceptor_->close();
      if (listens_ && bound_.is_unix()) ::unlink(bound_.str().c_str() + std::strlen("unix:"));
    });
  }

 private:
  void wait_until(SteadyTime until) {
    const MutexLock lock(mutex_);
    while (state_.connections.load() > 0 && closed_.wait_until(mutex_, until)) {
    }
  }

  GrpcState state_;
  const Address bound_;
  const bool listens_;
  std::atomic<std::size_t> next_{0};  // loop of the next adopted connection
  std::vector<std::unique_ptr<GrpcLoop>> loops_;
  std::optional<Acceptor> acceptor_;  // after the loops that it uses, so destroyed before them
  std::once_flag stopped_;
  Mutex mutex_;
  CondVar closed_;
};

}  // namespace grpc_server

Result<std::unique_ptr<GrpcServer>> GrpcServer::create(Options options, GrpcHandler handler) {
  if (!handler) return Error(Code::kInvalid, "a server needs a handler");
  if (options.io_threads == 0 || options.io_threads > 256)
    return Error(Code::kInvalid, "io_threads must be 1 to 256");
  if (options.connections_max == 0 || options.streams_max == 0)
    return Error(Code::kInvalid, "connections_max and streams_max must be at least 1");
  if (options.received_bytes_max < options.message_bytes_max)
    return Error(Code::kInvalid, "received_bytes_max must be at least message_bytes_max");
  if (options.window_bytes < 16384 || options.window_bytes > (16u << 20))
    return Error(Code::kInvalid, "window_bytes must be 16 KiB to 16 MiB");
  internal::TlsContext tls;
  if (options.tls) {
    TRY(tls, internal::server_context(*options.tls, internal::Protocol::kHttp2));
  }
  internal::Address address;
  internal::Fd listener;
  if (!options.listen.empty()) {
    TRY(address, internal::Address::parse(options.listen));
    TRY(listener, internal::listen_on(address));
    if (!address.is_unix()) address = internal::local_address(listener.get());
  }
  return std::unique_ptr<GrpcServer>(std::make_unique<grpc_server::GrpcServerImpl>(
      std::move(options), std::move(handler), std::move(tls), address, std::move(listener)));
}

GrpcHandler grpc_methods(std::map<std::string, GrpcHandler, std::less<>> handlers) {
  return [handlers =
              std::move(handlers)](std::shared_ptr<GrpcCall> call) -> std::unique_ptr<GrpcEvents> {
    const auto found = handlers.find(call->request().method);
    if (found != handlers.end()) return found->second(std::move(call));
    call->finish(Error(Code::kUnsupported, "no method " + call->request().method));
    return nullptr;
  };
}

}  // namespace varda::net
