// One client connection of HTTP/2 as gRPC uses it, without I/O: bytes in, bytes out. nghttp2 behind a plain interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::net::internal {

/// What became of a call.
struct GrpcAnswer {
  int http_status = 0;
  std::string content_type;
  int grpc_status = -1;  // -1: none was sent
  std::string grpc_message;
  std::string body;         // length-prefixed messages, as they came
  std::uint32_t reset = 0;  // error code of a stream that was reset; 0: it ended
  bool refused = false;     // the server says it did not look at it
  bool too_large = false;
};

/// One thread at a time.
class Http2Call {
 public:
  static std::unique_ptr<Http2Call> create(std::size_t body_bytes_max);
  virtual ~Http2Call() = default;

  struct Request {
    std::string_view method;   // "/package.Service/Method"
    std::string_view timeout;  // "10000m"; "": none
    std::string_view message;  // without prefix; outlives the call
  };
  /// Begins a call; the one before has ended. An error: no more calls on this connection.
  virtual Status begin(const Request& request) = 0;
  /// The call under way, or the last one, has its answer.
  virtual bool done() const = 0;
  virtual GrpcAnswer take() = 0;

  /// Bytes of the peer. An error: it does not speak HTTP/2, and the connection is of no more use.
  virtual Status feed(std::string_view bytes) = 0;
  /// Bytes for the peer, up to some kilobytes; empty: none now. An error: the connection is of no more use.
  virtual Result<std::string_view> output() = 0;
  /// A further call may begin: no GOAWAY has come, and the streams are not used up.
  virtual bool reusable() const = 0;
};

}  // namespace varda::net::internal
