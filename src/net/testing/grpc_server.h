// A gRPC server on a Unix socket that sends exactly the bytes a test asks for.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace varda::net::testing {

struct CannedGrpcCall {
  std::string method, message, timeout;
};

struct GrpcReply {
  int http_status = 200;
  std::string content_type = "application/grpc";
  std::optional<int> status = 0;       // absent: no trailers
  std::string message;                 // as sent in grpc-message
  std::string body;                    // with its prefix
  std::optional<std::uint32_t> reset;  // resets the stream with that code instead of an answer
  bool no_answer = false;              // no answer; the stream stays open
  bool go_away = false;                // sends GOAWAY before the answer
  bool close = false;                  // closes the connection instead of an answer

  static GrpcReply of(std::string_view message);
  static GrpcReply error(int status, std::string message);
};

/// One thread per connection; the destructor ends them all.
class CannedGrpcServer {
 public:
  /// `answer` is called from the connections' threads.
  CannedGrpcServer(const std::string& unix_path,
                   std::function<GrpcReply(const CannedGrpcCall&)> answer);
  ~CannedGrpcServer();
  CannedGrpcServer(const CannedGrpcServer&) = delete;
  CannedGrpcServer& operator=(const CannedGrpcServer&) = delete;

  /// Connections accepted so far.
  int connections() const;
  /// Connections open now.
  int open_connections() const;
  /// Closes all connections; the socket keeps listening.
  void drop_connections();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace varda::net::testing
