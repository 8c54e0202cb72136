// gRPC client for unary calls: blocking, pooled, HTTP/2 in clear text over a Unix socket or TCP.
//
//   auto grpc = net::make_grpc_client({.unix_socket = "/run/containerd/containerd.sock"});
//   TRY(const std::string answer, grpc->call(ctx, "/runtime.v1.RuntimeService/Version", request));
//
// Messages are opaque bytes to the client. A connection carries one call at a time. Concurrent
// calls use separate connections, so a slow call does not delay the others. Wire format:
// github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/context.h"
#include "base/result.h"

namespace varda::net {

struct GrpcClientOptions {
  std::string unix_socket;
  std::string address = {};  // "127.0.0.1:8081"; replaces unix_socket
  std::chrono::milliseconds connect_timeout{5000};
  std::size_t message_bytes_max = 16u << 20;  // of an answer; larger ones end as kExhausted
  std::size_t idle_connections_max = 4;
};

/// Thread-safe.
class GrpcClient {
 public:
  virtual ~GrpcClient() = default;
  /// Makes one call and returns when it was answered or failed. `method` is
  /// "/package.Service/Method". The server receives the context's deadline. Giving up a call closes
  /// its connection.
  ///
  /// A status other than OK becomes an Error with the server's message and the matching Code.
  /// NOT_FOUND is kNotFound, UNKNOWN and INTERNAL are kInternal, UNIMPLEMENTED is kUnsupported, and
  /// so on. kUnavailable also means that no server listens or that the connection broke. The
  /// message then names the server, and the server may have executed the call. A call is retried
  /// once on a new connection in two cases. The pooled connection was closed, or the server refused
  /// the call unprocessed.
  virtual Result<std::string> call(const Context& ctx, std::string_view method,
                                   std::string_view message) = 0;
};

std::unique_ptr<GrpcClient> make_grpc_client(GrpcClientOptions options);

}  // namespace varda::net
