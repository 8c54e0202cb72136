// gRPC client for unary calls over a Unix socket: blocking, pooled, HTTP/2 in clear text.
//
//   auto grpc = net::make_grpc_client({.unix_socket = "/run/containerd/containerd.sock"});
//   TRY(const std::string answer, grpc->call(ctx, "/runtime.v1.RuntimeService/Version", request));
//
// What the messages mean is the caller's: bytes go in, bytes come out. A connection carries one call at a time; calls at the same
// time have connections of their own, so that a slow one holds up nobody. Wire:
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
  std::chrono::milliseconds connect_timeout{5000};
  std::size_t message_bytes_max = 16u << 20;  // of an answer; larger ones end as kExhausted
  std::size_t idle_connections_max = 4;
};

/// Thread-safe.
class GrpcClient {
 public:
  virtual ~GrpcClient() = default;
  /// One call, answered or failed when it returns. `method` is "/package.Service/Method". The deadline of the context is told to
  /// the server; a call that is given up takes its connection along.
  ///
  /// An answer with a status other than OK is an Error with the server's words and the Code next to its status (NOT_FOUND is
  /// kNotFound, UNKNOWN and INTERNAL are kInternal, UNIMPLEMENTED is kUnsupported ...). kUnavailable is also: nobody listens, or
  /// the connection broke; the message names the socket, and the call may have been carried out. A call that finds its pooled
  /// connection closed, or that the server says it did not look at, is made once more on a new one.
  virtual Result<std::string> call(const Context& ctx, std::string_view method, std::string_view message) = 0;
};

std::unique_ptr<GrpcClient> make_grpc_client(GrpcClientOptions options);

}  // namespace varda::net
