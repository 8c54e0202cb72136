// gRPC server over TCP or TLS: unary and streaming calls, messages as opaque bytes.
//
//   net::GrpcThreads threads({.threads = 4});
//   TRY(const auto server, net::GrpcServer::create(
//       {.listen = "127.0.0.1:8081"},
//       net::grpc_methods({{"/pkg.Echo/Say", threads.unary(say)},        // blocking, on a thread
//                          {"/pkg.Echo/Join", open_session}})));         // events, on an I/O
//                          thread
//
// An open call costs no thread. A handler with events fits calls that wait for long; GrpcThreads
// runs blocking handlers. Wire format: github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
// Decisions: docs/design/030-grpc-server.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/context.h"
#include "base/result.h"
#include "net/http.h"
#include "net/tls.h"
#include "net/tunnel.h"

namespace varda::net {

/// The beginning of a call.
struct GrpcRequest {
  std::string method;  // "/package.Service/Method"
  Headers metadata;    // without gRPC's own fields; values of "-bin" names stay in base64
  Peer peer;
  std::optional<SteadyTime> deadline;
};

/// A message from a client. Its bytes count in Options::received_bytes_max until `hold` dies.
struct GrpcMessage {
  std::string bytes;
  std::shared_ptr<const void> hold;
};

/// The server's side of one call. Thread-safe. A call may outlive its connection and its server;
/// then all functions fail or do nothing.
class GrpcCall {
 public:
  virtual ~GrpcCall() = default;
  virtual const GrpcRequest& request() const = 0;
  /// Asks for the next message: one GrpcEvents::on_message() or on_end() follows. Without a
  /// request, the client's bytes wait in the client, except for one flow-control window.
  virtual void read() = 0;
  /// Queues a message. Many calls may share its bytes. kExhausted: earlier messages with more than
  /// send_bytes_max wait for the client; GrpcEvents::on_drained() follows. kCancelled: the call is
  /// over.
  virtual Status send(std::shared_ptr<const std::string> message) = 0;
  Status send(std::string message) {
    return send(std::make_shared<const std::string>(std::move(message)));
  }
  /// Ends the call after the queued messages. The first status counts.
  virtual void finish(Status status) = 0;
};

/// Events of one call, on the I/O thread of its connection, one at a time. Must not block.
class GrpcEvents {
 public:
  virtual ~GrpcEvents() = default;
  virtual void on_message(GrpcMessage message) = 0;
  /// The client sends no more messages.
  virtual void on_end() = 0;
  /// All queued messages are written.
  virtual void on_drained() {}
  /// The last event, once. Success: finish() was called and the client has received everything.
  /// kCancelled: the client cancelled the call or disconnected. kTimeout: the deadline passed.
  /// kUnavailable: the client is too slow, or the server stops.
  virtual void on_done(const Status& status) = 0;
};

/// Called on an I/O thread when a call begins. Null: the handler has called finish(). Thread-safe.
using GrpcHandler = std::function<std::unique_ptr<GrpcEvents>(std::shared_ptr<GrpcCall>)>;

/// Chooses the handler by method; other methods are UNIMPLEMENTED.
GrpcHandler grpc_methods(std::map<std::string, GrpcHandler, std::less<>> handlers);

/// The blocking view of a streaming call. One thread at a time.
class GrpcStream {
 public:
  virtual ~GrpcStream() = default;
  virtual const GrpcRequest& request() const = 0;
  /// Done when the client cancels, the deadline passes, or the server stops.
  virtual const Context& context() const = 0;
  /// The next message; nullopt after the last one. kCancelled, kTimeout: the call is over.
  virtual Result<std::optional<GrpcMessage>> read() = 0;
  /// Waits while earlier messages wait for the client.
  virtual Status write(std::string message) = 0;
};

/// Runs blocking handlers on a fixed number of threads behind a bounded queue. Beyond the queue,
/// calls end as RESOURCE_EXHAUSTED. Destroying it cancels running handlers and waits for them;
/// destroy the server first.
class GrpcThreads {
 public:
  struct Options {
    std::size_t threads = 4;
    std::size_t queue_max = 1024;  // calls without a thread
  };
  /// The context ends with the call.
  using Unary = std::function<Result<std::string>(const Context& ctx, const GrpcRequest& request,
                                                  std::string_view message)>;
  /// Occupies a thread as long as the call. The returned status ends the call.
  using Streaming = std::function<Status(GrpcStream& stream)>;

  explicit GrpcThreads(Options options);
  ~GrpcThreads();
  /// A thread is taken when the whole message has arrived.
  GrpcHandler unary(Unary handler);
  GrpcHandler streaming(Streaming handler);

  struct Impl;  // of grpc_threads.cc

 private:
  std::shared_ptr<Impl> impl_;
};

/// Listens from create() on. Thread-safe.
class GrpcServer {
 public:
  struct Options {
    // Port 0: any free one. "unix:/path" is a Unix socket. "": only adopt() brings connections.
    std::string listen = "127.0.0.1:0";
    std::optional<TlsServer> tls;  // absent: HTTP/2 with prior knowledge
    std::size_t io_threads = 1;
    // At the limit, connections without calls are closed after a second; further clients wait in
    // the kernel's backlog.
    std::size_t connections_max = 16384;
    std::size_t connections_per_address_max = 0;  // IPv6: the first 64 bits; 0: no limit
    std::size_t streams_max = 100;                // open calls of one connection
    std::size_t header_bytes_max = 16 << 10;      // of one call
    std::size_t message_bytes_max = 16 << 20;     // from clients; RESOURCE_EXHAUSTED beyond
    // Sum of large messages that arrive or are held by handlers. A message waits in its client
    // until its whole length fits, so that each begun message can end. At least message_bytes_max.
    std::size_t received_bytes_max = 256 << 20;
    static constexpr std::size_t kSmallMessageBytes = 64 << 10;  // not in this sum
    // Queued messages of one call. A single message may be larger.
    std::size_t send_bytes_max = 1 << 20;
    std::size_t window_bytes = 256 << 10;  // flow control of one call
    // From accept() to the first SETTINGS frame, with TLS handshake.
    std::chrono::milliseconds handshake_timeout{10000};
    std::chrono::milliseconds idle_timeout{300000};  // of a connection without calls
    std::chrono::milliseconds write_timeout{30000};  // without progress of a queued message
    // A begun message needs these bytes a second in every window until its end.
    std::size_t message_bytes_per_second_min = 1024;
    std::chrono::milliseconds message_window{10000};
    // Pings a quiet connection, and closes it without an answer within the timeout.
    std::chrono::milliseconds keepalive_time{60000};
    std::chrono::milliseconds keepalive_timeout{20000};
    // Frames that cost the client little (PING, SETTINGS, RST_STREAM, empty DATA, …). A client that
    // exceeds both is closed with ENHANCE_YOUR_CALM.
    std::size_t control_frames_burst = 1000;
    std::size_t control_frames_per_second = 100;
  };
  /// kUnavailable: the address is in use or not on this machine. kInvalid: bad options.
  static Result<std::unique_ptr<GrpcServer>> create(Options options, GrpcHandler handler);
  virtual ~GrpcServer() = default;

  /// The bound address, such as "127.0.0.1:41873". "": the server does not listen.
  virtual std::string address() const = 0;
  virtual int port() const = 0;
  virtual std::size_t connections() const = 0;

  /// New connections get these certificates. kInvalid: as create(), or a server without TLS.
  virtual Status use_tls(const TlsServer& tls) = 0;

  /// Serves a connection that another server accepted: Server::Options::http2. Requests have this
  /// peer. The connection is closed if the server is full or has stopped. Call before the
  /// destructor.
  virtual void adopt(std::unique_ptr<Tunnel> connection, Peer peer) = 0;

  /// Asks clients to open new calls elsewhere (GOAWAY). Open calls continue.
  virtual void drain() = 0;
  /// Stops accepting, drains, waits up to `grace` for open calls, then ends them as UNAVAILABLE and
  /// closes every connection. Idempotent.
  virtual void stop(std::chrono::milliseconds grace) = 0;
};

}  // namespace varda::net
