// HTTP/1.1 server over TCP or TLS.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "net/http.h"
#include "net/tls.h"

namespace varda::net {

/// Runs blocking handlers on a fixed number of threads behind a bounded queue; a full queue answers 429 with Retry-After: 1.
/// Destroying it waits for running handlers.
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

/// Listens from create() on; answers until stop(). Thread-safe.
class Server {
 public:
  struct Options {
    std::string listen = "127.0.0.1:0";  // port 0: any free one. "unix:/path" is a Unix socket
    std::optional<TlsServer> tls;        // absent: plain HTTP
    std::size_t io_threads = 1;
    // A further one takes the place of one that is idle, the one that is so longest on its thread; while none is, it waits in the
    // kernel's backlog.
    std::size_t connections_max = 4096;
    // Of one address (of IPv6 the first 64 bits); further ones are closed at once. 0: any number.
    std::size_t connections_per_address_max = 0;
    std::size_t handshakes_max = 512;                // TLS handshakes at once: of too many none would be done in time
    std::chrono::milliseconds handshake_turn{2000};  // one that gets no further for so long counts no more among them
    std::size_t header_bytes_max = 64 << 10;         // 431 beyond
    std::size_t body_bytes_max = 16 << 20;           // 413 beyond
    // A smaller limit for some requests; unset: the same for all. Runs on I/O threads, so it is quick.
    std::function<std::size_t(std::string_view method, std::string_view path)> body_bytes_max_of;
    // Of all requests together until they are answered, bodies up to kSmallBodyBytes left out: 503 beyond. 0: none.
    std::size_t bodies_bytes_max = 0;
    bool json_refusals = false;                       // what the server refuses itself: {"error": …}, else plain text
    std::size_t stream_buffer_bytes_max = 1 << 20;    // unsent bytes of one stream before reading of it pauses
    std::chrono::milliseconds header_timeout{10000};  // from the first byte to the end of the header
    std::chrono::milliseconds idle_timeout{120000};   // between requests of one connection; header_timeout before the first
    std::chrono::milliseconds write_timeout{30000};   // without progress: the connection is closed
    std::size_t body_bytes_per_second_min = 1024;     // of a request body, beyond its first write_timeout: 408. 0: none
    static constexpr std::size_t kSmallBodyBytes = 64 << 10;
    // Where client certificates are asked for. A client is known by the name in its certificate; without one it is nameless. Of
    // too many connections the oldest is closed for the newest. 0: no limit.
    std::size_t connections_per_name_max = 0;
    std::size_t nameless_connections_max = 0;  // of all of them; if set, each may lie idle for header_timeout only
    std::size_t nameless_body_bytes_max = 0;   // 413 beyond
  };
  /// kUnavailable: the address is in use or not ours. kInvalid: bad options. `handler` outlives stop().
  static Result<std::unique_ptr<Server>> create(Options options, Handler handler);
  virtual ~Server() = default;

  /// "127.0.0.1:41873": what was really bound.
  virtual std::string address() const = 0;
  virtual int port() const = 0;

  /// New connections are shown this certificate; open connections keep the one they began with. The client CA stays as
  /// create() was given it. kInvalid: as create(), or a server without TLS. Then nothing has changed.
  virtual Status use_certificate(const std::string& certificate_pem, const std::string& key_pem) = 0;

  /// From now on every response says `Connection: close`, while new connections and requests are still served: what a draining
  /// server does so that clients move on by themselves.
  virtual void drain() = 0;
  /// Stops accepting, waits up to `grace` for requests in flight, then closes every connection. Idempotent.
  virtual void stop(std::chrono::milliseconds grace) = 0;
};

}  // namespace varda::net
