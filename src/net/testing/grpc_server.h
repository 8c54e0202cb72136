// A gRPC server on a Unix socket that says exactly what a test wants said.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace varda::net::testing {

struct GrpcCall {
  std::string method, message, timeout;
};

struct GrpcReply {
  int http_status = 200;
  std::string content_type = "application/grpc";
  std::optional<int> status = 0;       // nothing: no trailers
  std::string message;                 // as it stands in grpc-message
  std::string body;                    // with its prefix
  std::optional<std::uint32_t> reset;  // the stream, with that code, instead of an answer
  bool silent = false;                 // no answer; the stream stays open
  bool go_away = false;                // before the answer: this connection takes no further call
  bool close = false;                  // the connection, instead of an answer

  static GrpcReply of(std::string_view message);
  static GrpcReply error(int status, std::string message);
};

/// One thread a connection; ends them all when it is destroyed.
class GrpcServer {
 public:
  /// `answer` is called from the connections' threads.
  GrpcServer(const std::string& unix_path, std::function<GrpcReply(const GrpcCall&)> answer);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  /// How many were ever taken.
  int connections() const;
  /// How many there are.
  int open_connections() const;
  /// Closes those there are; the socket goes on listening.
  void drop_connections();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace varda::net::testing
