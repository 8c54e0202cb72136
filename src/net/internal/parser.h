// HTTP/1.1 messages from bytes, without I/O. Wraps Beast's parser so that only parser.cc knows it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "net/http.h"

namespace varda::net::internal {

/// What a parser has found so far. Fields that do not belong to the kind stay empty.
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

  /// Takes bytes and returns how many were used. It stops by itself after the header, after the message, at an error, and where
  /// it needs more than is there; what was not used must be given again, in one piece with what follows.
  virtual std::size_t feed(std::string_view bytes) = 0;
  /// The peer has closed. False: the message is cut short.
  virtual bool feed_end() = 0;

  virtual bool started() const = 0;  // a byte of this message was taken
  virtual bool header_done() const = 0;
  virtual bool done() const = 0;
  /// 0, or what a server answers to what it was sent: 400, 413, 431, 505.
  virtual int error_status() const = 0;
  virtual std::string error_text() const = 0;

  // After the header.
  virtual bool keep_alive() const = 0;
  virtual bool ends_with_connection() const = 0;  // a response without length
  virtual bool expects_body() const = 0;          // of requests: a length > 0 or chunked

  /// A response to HEAD has no body. Before its header is parsed.
  virtual void no_body() = 0;
  virtual Message& message() = 0;
  /// Ready for the next message of the connection.
  virtual void reset() = 0;
};

/// "Not Found" for 404.
std::string_view reason_phrase(int status);

}  // namespace varda::net::internal
