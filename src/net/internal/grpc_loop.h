// One I/O thread of a gRPC server: its connections, mailbox and deadlines.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "net/grpc_server.h"
#include "net/internal/addresses.h"
#include "net/internal/mailbox.h"
#include "net/internal/reactor.h"
#include "net/internal/receive_budget.h"
#include "net/internal/socket.h"
#include "net/internal/tls_context.h"

namespace varda::net::internal {

/// State that the loops of one server share. Constant, atomic, or guarded.
struct GrpcState {
  GrpcServer::Options options;
  GrpcHandler handler;
  Addresses addresses;
  std::shared_ptr<ReceiveBudget> budget;
  std::atomic<bool> draining{false};
  std::atomic<bool> stopping{false};
  std::atomic<bool> full{false};  // a client waits for a free connection
  std::atomic<std::size_t> connections{0};
  std::function<void()> on_closed;  // after each connection, from its loop's thread

  void use(TlsContext tls) EXCLUDES(tls_mutex) {
    const MutexLock lock(tls_mutex);
    tls_context.swap(tls);
  }
  /// Null: without TLS.
  TlsContext tls() EXCLUDES(tls_mutex) {
    const MutexLock lock(tls_mutex);
    return tls_context;
  }
  Mutex tls_mutex;
  TlsContext tls_context GUARDED_BY(tls_mutex);
};

class GrpcConnection;

/// Everything but start(), stop() and adopt() belongs to the loop's thread.
class GrpcLoop {
 public:
  explicit GrpcLoop(GrpcState& state);
  ~GrpcLoop();

  void start();
  /// Ends the thread and closes the remaining connections.
  void stop();
  void adopt(Fd fd, std::string peer);
  void adopt(std::unique_ptr<Tunnel> tunnel, Peer peer);
  void drain();
  /// Ends calls as UNAVAILABLE, and closes connections as soon as their clients know.
  void abort();
  /// Closes connections that have no calls since this time.
  void close_idle(SteadyTime since);

  Reactor& reactor() { return *reactor_; }
  GrpcState& state() { return state_; }
  std::vector<char>& scratch() { return scratch_; }
  const std::shared_ptr<Mailbox>& mailbox() { return mailbox_; }
  /// Calls on_time() of that connection at `to` instead of `from`; max(): never.
  void schedule(std::uint64_t id, SteadyTime from, SteadyTime to);
  /// Called by a connection that is done. The connection lives until the current callback has
  /// returned.
  void bury(std::uint64_t id);

 private:
  /// False: the loop has ended, and the connection does not begin.
  bool begin(const std::string& peer);
  void start(std::unique_ptr<GrpcConnection> connection);
  void deliver();
  void arm();
  void on_timer();
  template <typename Work>
  void each(const Work& work);

  GrpcState& state_;
  std::unique_ptr<Reactor> reactor_;
  std::shared_ptr<Mailbox> mailbox_;
  std::unordered_map<std::uint64_t, std::unique_ptr<GrpcConnection>> connections_;
  std::vector<std::unique_ptr<GrpcConnection>> dead_;
  std::set<std::pair<SteadyTime, std::uint64_t>> deadlines_;
  SteadyTime armed_ = SteadyTime::max();
  std::vector<char> scratch_;
  std::uint64_t next_id_ = 1;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace varda::net::internal
