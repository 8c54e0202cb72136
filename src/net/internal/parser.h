// Parses HTTP/1.1 messages without I/O. Wraps Beast's parser so that only parser.cc knows it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "net/http.h"

namespace varda::net::internal {

/// The message found so far. Fields that do not belong to the kind stay empty.
struct Message {
  std::string method, target;  // requests
  int status = 0;              // responses
  int minor_version = 1;       // HTTP/1.x
  Headers headers;
  std::string body;  // decoded bytes since the last take; the caller may move them out at any time
};

struct ParserLimits {
  std::size_t header_bytes = 64 << 10;
  std::uint64_t body_bytes = UINT64_MAX;
};

/// Parses one message after another; one thread at a time.
class Parser {
 public:
  enum class Kind { kRequest, kResponse };
  static std::unique_ptr<Parser> create(Kind kind, ParserLimits limits);
  virtual ~Parser() = default;

  /// Takes bytes and returns how many were used. Stops after the header, after the message, at an
  /// error, and where it needs more bytes. Pass unused bytes again, joined with the bytes that
  /// follow.
  virtual std::size_t feed(std::string_view bytes) = 0;
  /// The peer has closed. False: the message is truncated.
  virtual bool feed_end() = 0;

  virtual bool started() const = 0;  // a byte of this message was taken
  virtual bool header_done() const = 0;
  virtual bool done() const = 0;
  /// 0, or the status with which a server refuses the message: 400, 413, 431, 505.
  virtual int error_status() const = 0;
  virtual std::string error_text() const = 0;

  // The following hold after the header.
  virtual bool keep_alive() const = 0;
  virtual bool ends_with_connection() const = 0;  // a response without length
  virtual bool expects_body() const = 0;          // of requests: a length > 0 or chunked

  /// Declares that the response has no body (HEAD). Call it before the header is parsed.
  virtual void no_body() = 0;
  virtual Message& message() = 0;
  /// Prepares for the next message of the connection.
  virtual void reset() = 0;
};

/// "Not Found" for 404.
std::string_view reason_phrase(int status);

}  // namespace varda::net::internal
