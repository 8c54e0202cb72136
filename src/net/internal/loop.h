// One I/O thread of a server: its connections, its mail, its tick.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "net/internal/addresses.h"
#include "net/internal/clients.h"
#include "net/internal/connection.h"
#include "net/internal/mailbox.h"
#include "net/internal/reactor.h"
#include "net/internal/socket.h"
#include "net/internal/tls_context.h"
#include "net/server.h"

namespace varda::net::internal {

/// What the loops of one server share. Constant, atomic, or guarded.
struct ServerState {
  Server::Options options;  // without tls: plain
  Handler handler;
  bool asks_names = false;  // clients are asked for certificates
  Clients clients;
  Addresses addresses;
  std::atomic<bool> draining{false};
  std::atomic<bool> stopping{false};
  std::atomic<std::size_t> connections{0};
  std::atomic<std::size_t> handshakes{0};        // of TLS, counted from accept() on
  std::atomic<std::size_t> body_bytes{0};        // of large bodies of requests that are not answered
  std::function<void(bool was_full)> on_closed;  // after each connection, from its loop's thread
  std::atomic<bool> full{false};                 // somebody waits for the place of another
  std::function<void()> on_idle;                 // a connection became idle while that was so
  std::function<void()> on_shaken;               // a handshake was one of too many, and is over
  /// One that subtracts and one that looks are two steps: of two connections that close at once each would then see the other's.
  void connection_over() { on_closed(connections.fetch_sub(1) >= options.connections_max); }
  void handshake_over() {
    if (options.tls && handshakes.fetch_sub(1) >= options.handshakes_max) on_shaken();
  }
  /// Connections that begin from now on take this context.
  void use(TlsContext tls) EXCLUDES(tls_mutex) {
    const MutexLock lock(tls_mutex);
    tls_context.swap(tls);  // what was there goes with `tls`, after the lock, or with its last connection
  }
  /// Null: plain.
  TlsContext tls() EXCLUDES(tls_mutex) {
    const MutexLock lock(tls_mutex);
    return tls_context;
  }
  Mutex tls_mutex;
  TlsContext tls_context GUARDED_BY(tls_mutex);
};

/// Everything but start(), stop() and adopt() belongs to its thread.
class Loop {
 public:
  explicit Loop(ServerState& state);
  ~Loop();

  void start();
  /// Ends the thread; connections still there are closed.
  void stop();
  void adopt(Fd fd, std::string peer);
  /// From any thread: that connection, if it is still there.
  void close_later(std::uint64_t id);
  /// Closes connections that serve no request now; the others close after theirs.
  void close_idle();
  void close_all();
  /// From any thread: the one that serves nobody for the longest time, if there is one.
  void close_longest_idle();

  Reactor& reactor() { return *reactor_; }
  ServerState& state() { return state_; }
  std::vector<char>& scratch() { return scratch_; }
  const std::shared_ptr<Mailbox>& mailbox() { return mailbox_; }
  const std::string& date();
  /// Called by a connection that is done: it lives until the current callback has returned.
  void bury(std::uint64_t id);

  // The request whose handler runs right now on this thread: its answer needs no mail.
  struct Inline {
    std::uint64_t connection = 0;
    std::uint64_t request = 0;  // of that connection
    std::uint64_t serial = 0;   // of all requests of this loop; 0: no handler runs
    std::optional<Response> response;
    Responder::Gone gone;  // what it wants to be told by
  };
  Inline current;
  std::uint64_t serials = 0;  // given so far
  /// The loop whose thread this is, or null.
  static Loop* here();

 private:
  void deliver();
  bool on_tick();
  bool on_handshake_tick();

  ServerState& state_;
  std::unique_ptr<Reactor> reactor_;
  std::shared_ptr<Mailbox> mailbox_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Connection>> dead_;
  std::vector<char> scratch_;
  std::chrono::milliseconds tick_period_;
  std::uint64_t next_id_ = 1;
  std::deque<std::pair<SteadyTime, std::uint64_t>> handshakes_;  // when to look whether the peer is quiet; the next one first
  bool ticking_ = false;
  bool closing_ = false;
  std::string date_;
  std::time_t date_second_ = 0;
  std::thread thread_;
};

}  // namespace varda::net::internal
