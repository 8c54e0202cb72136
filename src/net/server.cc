#include "net/server.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <unistd.h>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "net/internal/loop.h"
#include "net/internal/socket.h"

namespace varda::net {
namespace {

using internal::Address;
using internal::Fd;
using internal::Loop;
using internal::Reactor;

/// Accepts connections on the first loop's thread and distributes them.
class Acceptor final : public Reactor::Listener {
 public:
  Acceptor(internal::ServerState& state, std::vector<std::unique_ptr<Loop>>& loops, Fd listener)
      : state_(state),
        loops_(loops),
        watch_(loops.front()->reactor().watch(listener.release(), *this)) {}

  void resume() {
    if (watch_) watch_->want_read();
  }
  void close() { watch_.reset(); }

  void on_readable() override {
    // A few at a time, so that existing connections get turns in between.
    for (int i = 0; i < 64; ++i) {
      if (state_.connections.load() >= state_.options.connections_max) {
        if (i > 0) break;  // no further client is known to wait
        state_.full.store(true);
        make_room();
        return;  // a connection that closes or begins to wait for its client resumes accepting
      }
      state_.full.store(false);
      if (state_.handshakes.load() >= state_.options.handshakes_max)
        return;  // the end of a handshake resumes accepting
      Address peer;
      Fd fd = internal::accept_one(watch_->fd(), peer);
      if (!fd) {
        if (errno != EAGAIN && errno != EWOULDBLOCK) return wait_for_descriptors();
        break;
      }
      if (!peer.is_unix()) {
        internal::set_no_delay(fd.get());
        // A peer that lost power closes nothing, and a quiet open stream has nothing to write.
        internal::set_keepalive(fd.get());
      }
      const std::string name = peer.str();
      if (!state_.addresses.add(name)) continue;
      state_.connections.fetch_add(1);
      if (state_.options.tls) state_.handshakes.fetch_add(1);
      Loop& loop = *loops_[next_++ % loops_.size()];
      loop.adopt(std::move(fd), name);
    }
    watch_->want_read();
  }
  void on_writable() override {}

 private:
  struct Candidate {
    Loop* loop = nullptr;
    Loop::Waiting waiting;
  };
  struct Choice {
    SteadyTime begun;
    std::optional<Candidate> longest;
    bool newer = false;  // a connection began to wait after the choice had begun
  };

  /// Closes the connection that has waited longest for its client, of all threads.
  void make_room() {
    if (std::exchange(choosing_, true)) {
      choose_again_ = true;
    } else {
      visit_loop(0, {.begun = system_clock().now(), .longest = {}});
    }
  }
  /// Compares the choice so far with the connections of one loop, on its thread, then asks the
  /// next. A connection that was accepted meanwhile took a free place, and is no candidate.
  void visit_loop(std::size_t number, Choice choice) {
    if (number == loops_.size()) return close_chosen(choice);
    Loop& loop = *loops_[number];
    loop.reactor().post([this, number, choice, &loop]() mutable {
      const std::optional<Loop::Waiting> waiting = loop.longest_waiting();
      if (waiting && waiting->since > choice.begun) {
        choice.newer = true;
      } else if (waiting && (!choice.longest || waiting->since < choice.longest->waiting.since)) {
        choice.longest = Candidate{.loop = &loop, .waiting = *waiting};
      }
      visit_loop(number + 1, choice);
    });
  }
  void close_chosen(const Choice& choice) {
    if (!choice.longest) return chosen(!choice.newer);
    choice.longest->loop->reactor().post([this, longest = *choice.longest] {
      const bool full = state_.connections.load() >= state_.options.connections_max;
      chosen(!full || longest.loop->close_waiting(longest.waiting));
    });
  }
  void chosen(bool settled) {
    loops_.front()->reactor().post([this, settled] {
      choosing_ = false;
      if (std::exchange(choose_again_, false) || !settled) resume();
    });
  }

  void wait_for_descriptors() {
    log::warn("cannot accept connection, retrying", {{"error", std::strerror(errno)}});
    loops_.front()->reactor().tick(std::chrono::milliseconds(100), [this] {
      resume();
      return false;
    });
  }

  internal::ServerState& state_;
  std::vector<std::unique_ptr<Loop>>& loops_;
  std::unique_ptr<Reactor::Watch> watch_;
  std::size_t next_ = 0;
  bool choosing_ = false;      // the loops are being asked for a connection that gives way
  bool choose_again_ = false;  // a connection may have begun to wait for its client meanwhile
};

class SocketServer final : public Server {
 public:
  SocketServer(Options options, Handler handler, internal::TlsContext tls, const Address& bound,
               Fd listener)
      : bound_(bound) {
    state_.options = std::move(options);
    state_.handler = std::move(handler);
    state_.use(std::move(tls));
    state_.requests_client_certificates =
        state_.options.tls && !state_.options.tls->client_ca_pem.empty();
    state_.clients.limit({.per_name = state_.options.connections_per_name_max,
                          .nameless = state_.options.nameless_connections_max});
    state_.addresses.limit(state_.options.connections_per_address_max);
    const std::size_t bodies = state_.options.bodies_bytes_max;
    state_.bodies.limit(
        {.all = bodies, .per_address = std::max(bodies / 2, state_.options.body_bytes_max)});
    state_.on_closed = [this](bool was_full) { connection_closed(was_full); };
    state_.on_waiting = [this] {
      if (!state_.stopping.load()) loops_.front()->reactor().post([this] { acceptor_->resume(); });
    };
    state_.on_shaken = [this] {
      if (!state_.stopping.load()) loops_.front()->reactor().post([this] { acceptor_->resume(); });
    };
    for (std::size_t i = 0; i < state_.options.io_threads; ++i)
      loops_.push_back(std::make_unique<Loop>(state_));
    acceptor_.emplace(state_, loops_, std::move(listener));
    loops_.front()->reactor().post([this] { acceptor_->resume(); });
    for (auto& loop : loops_) loop->start();
  }
  ~SocketServer() override { stop(std::chrono::milliseconds(0)); }

  std::string address() const override { return bound_.str(); }
  int port() const override { return bound_.port(); }
  void drain() override { state_.draining.store(true); }

  Status use_certificate(const std::string& certificate_pem, const std::string& key_pem) override {
    if (!state_.options.tls)
      return Error(Code::kInvalid, "a server without TLS has no certificate");
    TlsServer tls = *state_.options.tls;
    tls.certificate_pem = certificate_pem;
    tls.key_pem = key_pem;
    return use_tls(tls);
  }

  Status use_tls(const TlsServer& tls) override {
    if (!state_.options.tls)
      return Error(Code::kInvalid, "a server without TLS has no certificate");
    if (tls.client_ca_pem.empty() != state_.options.tls->client_ca_pem.empty())
      return Error(Code::kInvalid,
                   "client certificates cannot be turned on or off while the server runs");
    TRY(internal::TlsContext context, internal::server_context(tls));
    state_.use(std::move(context));
    return {};
  }

  void stop(std::chrono::milliseconds grace) override {
    std::call_once(stopped_, [&] {
      const SteadyTime until = system_clock().now() + grace;
      state_.draining.store(true);
      state_.stopping.store(true);
      loops_.front()->reactor().post([this] { acceptor_->close(); });
      for (auto& loop : loops_) loop->reactor().post([&loop = *loop] { loop.close_idle(); });
      {
        MutexLock lock(mutex_);
        while (state_.connections.load() > 0 && closed_.wait_until(mutex_, until)) {
        }
      }
      for (auto& loop : loops_) loop->stop();
      acceptor_->close();
      if (bound_.is_unix()) ::unlink(bound_.str().c_str() + std::strlen("unix:"));
    });
  }

 private:
  void connection_closed(bool was_full) {
    if (!state_.stopping.load()) {
      if (was_full) loops_.front()->reactor().post([this] { acceptor_->resume(); });
      return;
    }
    MutexLock lock(mutex_);
    closed_.notify_all();
  }

  internal::ServerState state_;
  const Address bound_;
  std::vector<std::unique_ptr<Loop>> loops_;
  std::optional<Acceptor> acceptor_;  // after the loops that it uses, so destroyed before them
  std::once_flag stopped_;
  Mutex mutex_;
  CondVar closed_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::create(Options options, Handler handler) {
  if (!handler) return Error(Code::kInvalid, "a server needs a handler");
  if (options.io_threads == 0 || options.io_threads > 256)
    return Error(Code::kInvalid, "io_threads must be 1 to 256");
  if (options.handshakes_max == 0)
    return Error(Code::kInvalid, "handshakes_max must be at least 1");
  if (options.connections_max == 0)
    return Error(Code::kInvalid, "connections_max must be at least 1");
  if (options.tls && options.proxy && options.proxy->header == ProxyReception::Header::kOptional)
    return Error(Code::kInvalid, "with TLS a PROXY header is required or absent");
  internal::TlsContext tls;
  if (options.tls) {
    TRY(tls, internal::server_context(*options.tls));
  }
  TRY(Address address, Address::parse(options.listen));
  TRY(Fd listener, internal::listen_on(address));
  if (!address.is_unix()) address = internal::local_address(listener.get());
  return std::unique_ptr<Server>(std::make_unique<SocketServer>(
      std::move(options), std::move(handler), std::move(tls), address, std::move(listener)));
}

}  // namespace varda::net
