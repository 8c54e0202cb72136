// A socket that sends exactly the bytes a test asks for.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

namespace varda::net::testing {

/// One thread at a time.
class RawSocket {
 public:
  /// Connects to 127.0.0.1:port; aborts the test program on failure.
  explicit RawSocket(int port);
  explicit RawSocket(const std::string& unix_path);
  ~RawSocket();
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;

  void write(std::string_view bytes);
  /// Reads until `text` has arrived, the peer closes, or `limit` has passed. Returns all bytes not
  /// returned before.
  std::string read_until(std::string_view text,
                         std::chrono::milliseconds limit = std::chrono::seconds(60));
  /// Reads until the peer closes.
  std::string read_all(std::chrono::milliseconds limit = std::chrono::seconds(60));
  bool closed() const { return closed_; }
  void finish_writing();
  /// Resets the connection, so that the peer notices at once; nothing can follow.
  void reset();
  void write_urgent(char byte);

 private:
  int fd_ = -1;
  bool closed_ = false;
};

/// Listens on a free port of 127.0.0.1 and answers each connection with fixed bytes once it has
/// seen an empty line.
class CannedServer {
 public:
  /// Closes the connection after the answer.
  explicit CannedServer(std::string answer);
  ~CannedServer();
  int port() const { return port_; }

 private:
  struct State;
  std::unique_ptr<State> state_;
  int port_ = 0;
};

}  // namespace varda::net::testing
