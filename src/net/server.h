// HTTP/1.1 server over TCP or TLS.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "net/http.h"
#include "net/proxy_protocol.h"
#include "net/tls.h"

namespace varda::net {

/// Runs blocking handlers on a fixed number of threads behind a bounded queue; a full queue answers
/// 429 with Retry-After: 1. Destroying it waits for running handlers.
class HandlerPool {
 public:
  struct Options {
    std::size_t threads = 4;
    std::size_t queue_max = 1024;
  };
  explicit HandlerPool(Options options);
  ~HandlerPool();
  Handler wrap(SyncHandler handler);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Takes the body of one request while it arrives, so that memory never holds a large body. One I/O
/// thread calls all functions. Destroyed without finish() if the client left or the body was
/// refused.
class BodyReceiver {
 public:
  virtual ~BodyReceiver() = default;
  /// Takes the next bytes. A response refuses the rest of the body. Other connections wait
  /// meanwhile, so a write to a file's cache is the most this may do.
  virtual std::optional<Response> write(std::string_view bytes) = 0;
  /// False: the connection reads no more of the body until it is woken. Bytes that were read before
  /// still come, at most 256 KiB.
  virtual bool ready() { return true; }
  /// Called once, before the first write. After ready() returned false, the receiver calls `wake`
  /// when ready() would return true or a write would fail. From any thread; `wake` never calls
  /// back.
  virtual void on_ready(std::function<void()> /*wake*/) {}
  /// The body is complete. Must not block; `respond` may be called later, from any thread.
  virtual void finish(Responder respond) = 0;
};

/// The decision about a request's body before it arrives. Both empty: the handler gets the request
/// with its body.
struct Reception {
  std::unique_ptr<BodyReceiver> receiver;
  std::optional<Response> refusal;  // answers at once, and closes the connection
};

/// PROXY headers of version 2 on accepted connections; see Peer::stream_identity.
struct ProxyReception {
  enum class Header {
    kRequired,  // connections without a header are closed
    kOptional,  // such connections have no identity; not with TLS
  };
  Header header = Header::kRequired;
  StreamTrust trust;             // connections with another identity are closed
  const Clock* clock = nullptr;  // for expiry; null: the machine's; outlives the server
};

/// Listens from create() on; answers until stop(). Thread-safe.
class Server {
 public:
  struct Options {
    std::string listen = "127.0.0.1:0";   // port 0: any free one. "unix:/path" is a Unix socket
    std::optional<TlsServer> tls;         // absent: plain HTTP
    std::optional<ProxyReception> proxy;  // absent: no PROXY header is read
    // Takes connections that begin with the preface of HTTP/2 (RFC 9113, 3.4), preface
    // included: GrpcServer::adopt(). Runs on I/O threads and must not block. Null: they are
    // refused.
    std::function<void(std::unique_ptr<Tunnel> connection, const Peer& peer)> http2;
    std::size_t io_threads = 1;
    // At the limit, a new connection replaces the one that has waited longest for its client. A
    // wait begins with the connection, with each answer, header and body, after each body_window in
    // which the body was fast enough, and with progress of an answer. While the client waits for
    // the server, its connection never gives way. If all clients wait, the new connection waits in
    // the kernel's backlog.
    std::size_t connections_max = 4096;
    // Limit for one address (IPv6: the first 64 bits). Further connections are closed at once. 0:
    // no limit.
    std::size_t connections_per_address_max = 0;
    std::size_t handshakes_max =
        512;  // limit of concurrent TLS handshakes, so that they finish in time
    std::chrono::milliseconds handshake_turn{
        2000};  // without progress for this long, a handshake no longer counts
    std::size_t header_bytes_max = 64 << 10;  // 431 beyond
    std::size_t body_bytes_max = 16 << 20;    // 413 beyond
    // A smaller limit for some requests; unset: one limit for all. Runs on I/O threads, so it must
    // be quick.
    std::function<std::size_t(std::string_view method, std::string_view path)> body_bytes_max_of;
    // Selects requests with streamed bodies by their header; `head` has no body. Runs on I/O
    // threads, before 100 Continue. Streamed bodies count in no limit except body_bytes_max.
    std::function<Reception(const Request& head)> receive;
    // Limit for the bodies of all unanswered requests together. One address (IPv6: the first 64
    // bits) may use half of it, but at least body_bytes_max. Beyond a limit, the unfinished body
    // that has waited longest for its client gives way with 408. If that is the growing body
    // itself, its request gets 503. Bodies up to kSmallBodyBytes do not count. 0: no limit.
    std::size_t bodies_bytes_max = 0;
    bool json_refusals = false;  // the server's own refusals: {"error": …}, else plain text
    std::size_t stream_buffer_bytes_max =
        1 << 20;  // unsent bytes of one stream before reading from it pauses
    std::chrono::milliseconds header_timeout{
        10000};  // from the first byte to the end of the header
    std::chrono::milliseconds idle_timeout{
        120000};  // between requests of one connection; header_timeout before the first
    std::chrono::milliseconds write_timeout{
        30000};  // without progress; then the connection is closed
    // A request body needs these bytes a second in every body_window until its end; 408 otherwise.
    // 0: one byte in every body_window.
    std::size_t body_bytes_per_second_min = 1024;
    std::chrono::milliseconds body_window{10000};
    static constexpr std::size_t kSmallBodyBytes = 64 << 10;
    // These apply where the server asks for client certificates. The certificate's name identifies
    // the client; clients without one are nameless. Beyond a limit, the oldest connection is closed
    // for the newest. 0: no limit.
    std::size_t connections_per_name_max = 0;
    std::size_t nameless_connections_max =
        0;  // for all nameless clients; if set, idle time is limited to header_timeout
    std::size_t nameless_body_bytes_max = 0;  // 413 beyond
  };
  /// kUnavailable: the address is in use or not on this machine. kInvalid: bad options. `handler`
  /// outlives stop().
  static Result<std::unique_ptr<Server>> create(Options options, Handler handler);
  virtual ~Server() = default;

  /// The bound address, such as "127.0.0.1:41873".
  virtual std::string address() const = 0;
  virtual int port() const = 0;

  /// New connections get this certificate; open connections keep the old one. The client CA is
  /// unchanged. kInvalid: as create(), or a server without TLS; then nothing changes.
  virtual Status use_certificate(const std::string& certificate_pem,
                                 const std::string& key_pem) = 0;
  /// The same with the client CA, for new connections. kInvalid also: only one of create() and this
  /// call has a client CA.
  virtual Status use_tls(const TlsServer& tls) = 0;

  /// From now on every response carries `Connection: close`, so that clients reconnect elsewhere.
  /// New connections and requests are still served.
  virtual void drain() = 0;
  /// Stops accepting, waits up to `grace` for requests in flight, then closes every connection.
  /// Idempotent.
  virtual void stop(std::chrono::milliseconds grace) = 0;
};

}  // namespace varda::net
