// A gRPC client that a test drives frame by frame, over TCP in clear text.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace varda::net::testing {

/// The end of a call as the client sees it.
struct GrpcEnd {
  int http_status = 0;
  int grpc_status = -1;  // -1: none came
  std::string grpc_message;
  std::optional<std::uint32_t> reset;  // error code of RST_STREAM, except NO_ERROR
  bool disconnected = false;
};

/// One thread at a time. Each wait ends after a minute and aborts the test program.
class GrpcPeer {
 public:
  struct Options {
    bool reads = true;       // false: no window updates for received data
    std::size_t window = 0;  // of a stream; 0: nghttp2's default
  };
  explicit GrpcPeer(int port) : GrpcPeer(port, Options()) {}
  GrpcPeer(int port, Options options);
  ~GrpcPeer();
  GrpcPeer(const GrpcPeer&) = delete;
  GrpcPeer& operator=(const GrpcPeer&) = delete;

  using Fields = std::vector<std::pair<std::string, std::string>>;
  /// Begins a call and returns its stream. A field with the name of a default field replaces it.
  std::int32_t open(const std::string& method, const Fields& fields = {});
  /// Sends one message.
  void send(std::int32_t stream, std::string_view message);
  /// Sends bytes without a prefix.
  void send_raw(std::int32_t stream, std::string_view bytes);
  /// Half-closes the call.
  void end(std::int32_t stream);
  void reset(std::int32_t stream);
  /// The next message of the call; nullopt: the call ended.
  std::optional<std::string> read(std::int32_t stream);
  GrpcEnd wait_end(std::int32_t stream);
  /// Sends and waits for one message and the end.
  std::pair<std::string, GrpcEnd> call(const std::string& method, std::string_view message,
                                       const Fields& fields = {});

  void ping();
  /// Writes bytes between two frames.
  void write_raw(std::string_view bytes);
  /// Waits until the server closes; returns the error code of its last GOAWAY.
  std::optional<std::uint32_t> wait_closed();
  std::optional<std::uint32_t> wait_goaway();
  /// Reads and answers for this long, whatever arrives.
  void run_for(std::chrono::milliseconds time);
  int pings_received() const;
  bool open_to_calls() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace varda::net::testing
