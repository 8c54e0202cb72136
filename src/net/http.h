// HTTP as all other rooms see it: plain values in, plain values out. No third-party type crosses
// this header.
//
// A Handler serves requests from any source. A source is a socket server (net/server.h) or a client
// in the same process through loopback() below. The control plane uses loopback() to reach its own
// API server, and tests use it to run without sockets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "net/proxy_protocol.h"

namespace varda::net {

class Tunnel;

/// Header fields in order. Names compare without case.
class Headers {
 public:
  Headers() = default;
  Headers(std::initializer_list<std::pair<std::string, std::string>> fields) : fields_(fields) {}
  /// The first value, or nothing.
  std::optional<std::string_view> find(std::string_view name) const;
  void add(std::string name, std::string value) {
    fields_.emplace_back(std::move(name), std::move(value));
  }
  /// Replaces all fields of that name.
  void set(std::string_view name, std::string value);
  void remove(std::string_view name);
  const std::vector<std::pair<std::string, std::string>>& all() const { return fields_; }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

/// The sender of a request, as the transport knows it. Authentication adds to it.
struct Peer {
  std::string address;                  // "127.0.0.1:40822"; "loopback" in process
  std::string certificate_common_name;  // of a verified client certificate; "" without one
  std::vector<std::string> certificate_organizations = {};
  std::vector<std::string> certificate_organizational_units = {};
  WallTime certificate_not_after = {};  // a connection may outlive this time: users of the
                                        // certificate compare it with their clock
  bool certificate_expired = false;     // at the handshake; see TlsServer::Expired::kAccept
  /// For logs and queues: the common name of a verified client certificate, else its first
  /// alternative name, else its serial number. "" without a certificate. Only the common name is an
  /// identity.
  std::string certificate_name = {};
  // From a PROXY header (net/proxy_protocol.h), if the server reads one.
  std::string forwarded_for = {};                      // the client of the forwarder; "": unknown
  std::optional<StreamIdentity> stream_identity = {};  // of the worker behind a stream
};

struct Request {
  std::string method = "GET";
  std::string target = "/";  // path and query as sent: "/api/v1/pods?watch=1"
  Headers headers;
  std::string body;
  Peer peer;

  /// The target up to '?', still percent-encoded.
  std::string_view path() const;
  /// The part after '?'.
  std::string_view query() const;
};

/// A body produced over time. It has one reader; the writer is behind the interface.
class BodyStream {
 public:
  virtual ~BodyStream() = default;
  /// Never blocks. An empty string means no bytes now: `wake` is called when there are some.
  /// nullopt: the end.
  virtual std::optional<std::string> read() = 0;
  /// Called once, before the first read. `wake` may be called from any thread until the stream is
  /// destroyed, also without new bytes. It is cheap and never calls back into the stream.
  virtual void on_ready(std::function<void()> wake) = 0;
};

struct Response {
  int status = 200;
  Headers headers;
  std::string body;
  std::unique_ptr<BodyStream>
      stream;  // if set, the body comes from here (chunked), and `body` is not used
  /// With status 101: takes the connection over, see upgrade_response() in net/tunnel.h.
  std::function<void(std::unique_ptr<Tunnel>)> upgrade;
};

/// Completes one request, from any thread, at once or later. Answers 500 if destroyed without a
/// call. Move-only.
class Responder {
 public:
  using OnDisconnect = std::function<void()>;
  /// on_disconnect() passes its callback to `watch`; without `watch`, disconnects are not reported.
  explicit Responder(std::function<void(Response)> complete,
                     std::function<void(OnDisconnect)> watch = nullptr)
      : complete_(std::move(complete)), watch_(std::move(watch)) {}
  Responder(Responder&& other) noexcept
      : complete_(std::exchange(other.complete_, nullptr)),
        watch_(std::exchange(other.watch_, nullptr)) {}
  Responder& operator=(Responder&&) = delete;
  ~Responder();
  void operator()(Response response) {
    if (auto complete = std::exchange(complete_, nullptr)) complete(std::move(response));
  }

  /// Registers `callback`, called once if the client disconnects before the answer. Call it only
  /// within the handler's call, on the handler's thread. The last registration counts. Unused, it
  /// costs nothing.
  ///
  /// `callback` runs on the connection's I/O thread and must not block. With loopback() it runs on
  /// the thread of the caller that gave up. It is destroyed there too, after the answer or after
  /// its call. It may run while another thread answers; that answer is dropped.
  ///
  /// A client is gone if its connection broke or closed, or if the server stops. A half-close is
  /// different: the client may still wait for its answer. Both look the same here, so the server
  /// sends an interim response (100). Clients skip it (RFC 9110, 15.2); a machine without a
  /// listener resets the connection. HTTP/1.0 has no interim response, so there the end of input
  /// counts as gone. The end of input is not noticed behind more than 64 KiB of unread further
  /// requests. A reset is noticed, except behind urgent data.
  void on_disconnect(OnDisconnect callback) {
    if (watch_) watch_(std::move(callback));
  }

 private:
  std::function<void(Response)> complete_;
  std::function<void(OnDisconnect)> watch_;
};

/// Serves requests. Called on an I/O thread, so it must not block; blocking work goes through
/// HandlerPool (net/server.h). Thread-safe.
using Handler = std::function<void(Request, Responder)>;
/// A handler that returns its response.
using SyncHandler = std::function<Response(const Request&)>;

/// A handler that answers on the caller's thread (for work that takes microseconds).
Handler inline_handler(SyncHandler handler);

/// Reads one response's body, blocking. Not thread-safe, except that the context passed to send()
/// may be stopped from anywhere.
class BodyReader {
 public:
  virtual ~BodyReader() = default;
  /// The next bytes, at least one; nullopt at the end. Waits until the context given to send() is
  /// done. kUnavailable: the connection broke before the end. kTimeout, kCancelled: the context.
  virtual Result<std::optional<std::string>> read() = 0;
};

struct ClientRequest {
  std::string method = "GET";
  std::string url;  // absolute: "https://host:6443/path?query"; for loopback() just the target
  Headers headers;
  std::string body;
  std::uint64_t max_response_bytes = 64u << 20;  // for call(); larger answers end as kExhausted
};

struct ClientResponse {
  int status = 0;
  Headers headers;
  std::unique_ptr<BodyReader> body;
  bool other_origin = false;  // a redirect led to another origin than the request's
};

/// Sends requests. Thread-safe; connections are pooled per origin.
class HttpClient {
 public:
  virtual ~HttpClient() = default;
  /// Blocks until the response's header has arrived; the caller reads the body from `body`. An HTTP
  /// error status is a response, not an Error. kUnavailable: could not connect, or the peer went
  /// away.
  virtual Result<ClientResponse> send(const Context& ctx, ClientRequest request) = 0;

  struct Answer {
    int status = 0;
    Headers headers;
    std::string body;
  };
  /// Calls send() and reads the whole body.
  Result<Answer> call(const Context& ctx, ClientRequest request);
};

/// A client that passes requests straight to a handler, with no socket: bodies and streams behave
/// the same.
std::unique_ptr<HttpClient> loopback(Handler handler, Peer peer = {.address = "loopback",
                                                                   .certificate_common_name = ""});

}  // namespace varda::net
