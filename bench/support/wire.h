// A minimal HTTP/1.1 client for load: one blocking connection, plain or TLS, with the necessary
// checks only.
#pragma once

#include <openssl/ssl.h>
#include <string>
#include <string_view>

namespace varda::bench {

/// Ends the program: a failed measurement must not be printed.
[[noreturn]] void die(const std::string& what);

enum class Security { kPlain, kTls };

class Wire {
 public:
  Wire(int port, Security security);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  void send(std::string_view bytes);
  /// Reads one response with a Content-Length; the body stays valid until the next call. Dies
  /// unless the status is `status`.
  std::string_view receive(int status);
  std::string_view exchange(std::string_view request, int status) {
    send(request);
    return receive(status);
  }
  /// Some bytes of a stream; dies at the end of the stream.
  std::string_view some();
  int fd() const { return fd_; }

 private:
  std::size_t read(char* into, std::size_t size);

  int fd_ = -1;
  SSL* ssl_ = nullptr;
  std::string buffer_;
  std::size_t filled_ = 0;
};

/// "GET /path HTTP/1.1" with the headers of an API client.
std::string request(std::string_view method, std::string_view path, std::string_view token,
                    std::string_view body = "");

}  // namespace varda::bench
