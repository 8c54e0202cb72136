// Bytes over a non-blocking socket, plain or TLS, by readiness: a call does what it can now and says what to wait for. Server and
// client share it; who waits, and how, is theirs.
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
    kEnd,        // the peer closed in good order
    kError,      // broken; see error()
  };
  Kind kind = Kind::kBytes;
  std::size_t count = 0;
};

/// One thread at a time. Does not own the socket. A write never raises SIGPIPE.
class Stream {
 public:
  virtual ~Stream() = default;
  /// kBytes when the stream is ready for read and write. Plain streams always are. `count` is above 0 if the handshake got further:
  /// bytes of a message that is not whole yet are no step.
  virtual IoResult handshake() = 0;
  virtual IoResult read(std::span<char> into) = 0;
  /// Writes some of `first`, then of `second`, as if they were one.
  virtual IoResult write(std::string_view first, std::string_view second) = 0;
  /// No more will be written; the peer sees the end. Best effort.
  virtual void finish() = 0;
  /// True: after a short read() nothing is left that the socket would not announce.
  virtual bool short_read_means_empty() const = 0;
  /// Fills in what the verified certificate of the peer says; leaves `peer` as it is without one.
  virtual void describe_certificate(Peer& peer) const = 0;
  virtual std::string error() const = 0;
};

std::unique_ptr<Stream> plain_stream(int fd);
std::unique_ptr<Stream> tls_accept(int fd, const TlsContext& ctx);
/// Verifies the server's certificate for `server_name` (a DNS name or an IP address) if the context verifies at all; or, while it
/// still asks for `server_name`, for `verified_name` if that is not empty.
struct ServerNames {
  std::string server_name;
  std::string verified_name;
};
Result<std::unique_ptr<Stream>> tls_connect(int fd, const TlsContext& ctx, const ServerNames& names);

}  // namespace varda::net::internal
