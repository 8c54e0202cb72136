// Tunnel: a connection as bytes in both directions, after an HTTP upgrade (RFC 9110, 7.8) or plain
// TCP.
//
//   // A server:
//   if (!wants_upgrade(request, "varda-stream")) return respond(…426…);
//   respond(upgrade_response("varda-stream", [&](std::unique_ptr<Tunnel> tunnel) { … }));
//
//   // A client:
//   auto opener = make_tunnel_opener({.unix_socket = "/agent/worker.sock"});
//   TRY(auto tunnel, opener->connect(ctx, {.url = "http://agent/v1/streams/aggregator", …}));
//
// net::Splicer (net/splicer.h) copies between two tunnels. net::ClientOptions::connector sends HTTP
// requests through one.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/context.h"
#include "base/result.h"
#include "net/http.h"

namespace varda::net {

struct ClientOptions;

/// The protocol name of streams between workers (docs/design/029-streams.md).
inline constexpr std::string_view kStreamProtocol = "varda-stream";

/// Owns the connection; the destructor closes it. One thread at a time.
class Tunnel {
 public:
  struct Parts;  // of this room: internal/tunnel_parts.h
  explicit Tunnel(std::unique_ptr<Parts> parts);
  ~Tunnel();
  Tunnel(const Tunnel&) = delete;
  Tunnel& operator=(const Tunnel&) = delete;

  /// Waits for bytes and returns their count; 0: the peer has finished. kUnavailable: the
  /// connection broke. kTimeout, kCancelled: the context.
  Result<std::size_t> read(const Context& ctx, std::span<char> into);
  /// Returns once the kernel has all bytes. Errors as read().
  Status write(const Context& ctx, std::string_view bytes);
  /// Ends this side's bytes. The peer may still send.
  void finish();
  /// The address of the peer; "unix" for a Unix socket.
  const std::string& peer() const;
  /// Bytes of the peer that arrived with the answer and are not read yet.
  std::string_view unread() const;

  Parts& parts() { return *parts_; }

 private:
  const std::unique_ptr<Parts> parts_;
};

/// Two tunnels of this process that lead to each other.
std::pair<std::unique_ptr<Tunnel>, std::unique_ptr<Tunnel>> make_tunnel_pair();

/// True for a GET that asks to switch to `protocol`.
bool wants_upgrade(const Request& request, std::string_view protocol);
/// 101. `take` gets the connection once the answer is written, on an I/O thread: it must not block.
/// `take` is dropped if the client has left. Bytes that the client sent early are in the tunnel.
Response upgrade_response(std::string_view protocol,
                          std::function<void(std::unique_ptr<Tunnel>)> take);

struct TunnelRequest {
  std::string url;  // http or https
  Headers headers;
  std::string protocol = std::string(kStreamProtocol);
};
struct TunnelAnswer {
  int status = 0;
  Headers headers;
  std::string body;                // of a refusal, at most 64 KiB
  std::unique_ptr<Tunnel> tunnel;  // set with 101
};

/// Opens tunnels, each on a new connection. Thread-safe.
class TunnelOpener {
 public:
  virtual ~TunnelOpener() = default;
  /// A refusal of the server is an answer. kUnavailable: no connection, or no HTTP.
  virtual Result<TunnelAnswer> open(const Context& ctx, const TunnelRequest& request) = 0;
  /// A refusal is an Error with the status and the text: kUnauthenticated (401), kForbidden (403),
  /// kNotFound (404), else kUnavailable.
  Result<std::unique_ptr<Tunnel>> connect(const Context& ctx, const TunnelRequest& request);
};
/// Redirects and pools do not apply.
std::unique_ptr<TunnelOpener> make_tunnel_opener(ClientOptions options);

/// Opens the connections of a client instead of a dial; see ClientOptions::connector.
using Connector = std::function<Result<std::unique_ptr<Tunnel>>(const Context&)>;
/// A connector that upgrades a new connection each time. `headers` runs before each attempt, such
/// as to read a token that may have changed.
Connector upgrade_connector(ClientOptions reach, std::string url,
                            std::function<Result<Headers>()> headers);

}  // namespace varda::net
