// Bytes over a non-blocking socket, plain or TLS. Each call does what it can now and returns the
// readiness to wait for. The server and the client share this class and wait in different ways.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http.h"
#include "net/internal/tls_context.h"

namespace varda::net::internal {

struct IoResult {
  enum class Kind {
    kBytes,      // `count` bytes were moved
    kWantRead,   // call again when the socket is readable
    kWantWrite,  // ... writable
    kEnd,        // orderly close by the peer
    kError,      // broken; see error()
  };
  Kind kind = Kind::kBytes;
  std::size_t count = 0;
};

/// One thread at a time. Does not own the socket. A write never raises SIGPIPE.
class Stream {
 public:
  virtual ~Stream() = default;
  /// kBytes when the stream is ready for reads and writes; plain streams always are. `count` is
  /// above 0 if the handshake advanced by a whole message.
  virtual IoResult handshake() = 0;
  virtual IoResult read(std::span<char> into) = 0;
  /// Writes some of `first`, then of `second`, as one sequence.
  virtual IoResult write(std::string_view first, std::string_view second) = 0;
  /// Ends the writing side; the peer sees the end. Best effort.
  virtual void finish() = 0;
  /// True: after a short read() the socket announces all further bytes.
  virtual bool short_read_means_empty() const = 0;
  /// Fills in the facts of the peer's verified certificate; leaves `peer` unchanged without one.
  virtual void describe_certificate(Peer& peer) const = 0;
  virtual std::string error() const = 0;
};

std::unique_ptr<Stream> plain_stream(int fd);
std::unique_ptr<Stream> tls_accept(int fd, const TlsContext& ctx);
/// Verifies the server's certificate if the context verifies at all. The certificate must match
/// `verified_name` if that is set, else `server_name` (a DNS name or an IP address). SNI always
/// sends `server_name`.
struct ServerNames {
  std::string server_name;
  std::string verified_name;
};
Result<std::unique_ptr<Stream>> tls_connect(int fd, const TlsContext& ctx,
                                            const ServerNames& names);

}  // namespace varda::net::internal
