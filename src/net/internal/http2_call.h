// One client connection of HTTP/2 as gRPC uses it, without I/O: bytes in, bytes out. nghttp2 behind
// a plain interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::net::internal {

/// The result of a call.
struct GrpcAnswer {
  int http_status = 0;
  std::string content_type;
  int grpc_status = -1;  // -1: the server sent no status
  std::string grpc_message;
  std::string body;         // length-prefixed messages, as they came
  std::uint32_t reset = 0;  // error code of a reset stream; 0: the stream ended
  bool refused = false;     // the server did not process the call
  bool too_large = false;
};

/// One thread at a time.
class Http2Call {
 public:
  static std::unique_ptr<Http2Call> create(std::size_t body_bytes_max);
  virtual ~Http2Call() = default;

  struct Request {
    std::string_view method;   // "/package.Service/Method"
    std::string_view timeout;  // "10000m"; "": no timeout
    std::string_view message;  // without prefix; outlives the call
  };
  /// Begins a call; the previous call has ended. An error: the connection takes no more calls.
  virtual Status begin(const Request& request) = 0;
  /// The current or last call has its answer.
  virtual bool done() const = 0;
  virtual GrpcAnswer take() = 0;

  /// Takes bytes from the peer. An error: the peer does not speak HTTP/2, and the connection is
  /// unusable.
  virtual Status feed(std::string_view bytes) = 0;
  /// Returns bytes for the peer, up to some kilobytes; empty: none now. An error: the connection is
  /// unusable.
  virtual Result<std::string_view> output() = 0;
  /// Another call may begin: no GOAWAY has come, and stream ids are left.
  virtual bool reusable() const = 0;
};

}  // namespace varda::net::internal
