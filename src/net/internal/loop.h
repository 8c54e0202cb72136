// One I/O thread of a server: its connections, mailbox and tick.
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
#include "net/internal/bodies.h"
#include "net/internal/clients.h"
#include "net/internal/connection.h"
#include "net/internal/mailbox.h"
#include "net/internal/reactor.h"
#include "net/internal/socket.h"
#include "net/internal/tls_context.h"
#include "net/server.h"

namespace varda::net::internal {

/// State that the loops of one server share. Constant, atomic, or guarded.
struct ServerState {
  Server::Options options;  // without tls: plain
  Handler handler;
  bool requests_client_certificates = false;  // clients are asked for certificates
  Clients clients;
  Addresses addresses;
  Bodies bodies;  // large bodies of requests that are not answered yet
  std::atomic<bool> draining{false};
  std::atomic<bool> stopping{false};
  std::atomic<std::size_t> connections{0};
  std::atomic<std::size_t> handshakes{0};        // TLS handshakes, counted from accept() on
  std::function<void(bool was_full)> on_closed;  // after each connection, from its loop's thread
  std::atomic<bool> full{false};                 // a client waits for a free connection
  std::function<void()> on_waiting;  // a connection began to wait for its client while `full`
  std::function<void()> on_shaken;   // a handshake ended that was at the limit
  std::atomic<SteadyTime::rep> proxy_complaint{0};  // time of the last log line about a header
  /// Subtract and compare in one step. In two steps, two connections that close together could each
  /// see the other's value.
  void connection_over() { on_closed(connections.fetch_sub(1) >= options.connections_max); }
  void handshake_over() {
    if (options.tls && handshakes.fetch_sub(1) >= options.handshakes_max) on_shaken();
  }
  /// New connections use this context.
  void use(TlsContext tls) EXCLUDES(tls_mutex) {
    const MutexLock lock(tls_mutex);
    tls_context.swap(tls);  // the old context ends after the lock or with its last connection
  }
  /// Null: plain HTTP.
  TlsContext tls() EXCLUDES(tls_mutex) {
    const MutexLock lock(tls_mutex);
    return tls_context;
  }
  Mutex tls_mutex;
  TlsContext tls_context GUARDED_BY(tls_mutex);
};

/// Everything but start(), stop() and adopt() belongs to the loop's thread.
class Loop {
 public:
  explicit Loop(ServerState& state);
  ~Loop();

  void start();
  /// Ends the thread and closes the remaining connections.
  void stop();
  void adopt(Fd fd, std::string peer);
  /// From any thread. Closes that connection; ignored if unknown.
  void close_later(std::uint64_t id);
  /// From any thread. That connection's body gave way to another body.
  void refuse_body_later(std::uint64_t id);
  /// The connection leaves this loop after the current callback. Only this loop's thread calls it.
  void hand_over_later(std::uint64_t id);
  /// Closes connections that serve no request now; the others close after their request.
  void close_idle();
  void close_all();
  struct Waiting {
    SteadyTime since;
    std::uint64_t id = 0;
  };
  /// The connection that has waited longest for its client, if any waits.
  std::optional<Waiting> longest_waiting() const;
  /// False: that connection has made progress since.
  bool close_waiting(const Waiting& waiting);

  Reactor& reactor() { return *reactor_; }
  ServerState& state() { return state_; }
  std::vector<char>& scratch() { return scratch_; }
  const std::shared_ptr<Mailbox>& mailbox() { return mailbox_; }
  const std::string& date();
  /// Called by a connection that is done. The connection lives until the current callback has
  /// returned.
  void bury(std::uint64_t id);

  // The request that a handler on this thread serves right now. Its answer needs no mail.
  struct Inline {
    std::uint64_t connection = 0;
    std::uint64_t request = 0;  // of that connection
    std::uint64_t serial = 0;   // of all requests of this loop; 0: no handler runs
    std::optional<Response> response;
    Responder::OnDisconnect on_disconnect;  // disconnect callback of this request
  };
  Inline current;
  std::uint64_t serials = 0;  // serials used so far
  /// The loop that runs on the calling thread, or null.
  static Loop* of_this_thread();

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
  std::deque<std::pair<SteadyTime, std::uint64_t>>
      handshakes_;  // when to check for a silent peer; the earliest first
  bool ticking_ = false;
  bool closing_ = false;
  std::string date_;
  std::time_t date_second_ = 0;
  std::thread thread_;
};

}  // namespace varda::net::internal
