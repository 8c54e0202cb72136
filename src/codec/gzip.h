// Decodes a gzip stream (RFC 1952) piece by piece, for HTTP bodies: small state and bounded output.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::codec {

/// Not thread-safe.
class GzipDecoder {
 public:
  virtual ~GzipDecoder() = default;
  /// Consumes input, appends the output to `out` up to `out_max` bytes in total, and returns the
  /// bytes consumed. Fewer than given: `out` is full or the stream has ended. kCorrupt: damaged; no
  /// more output.
  virtual Result<std::size_t> feed(std::string_view bytes, std::string& out,
                                   std::size_t out_max) = 0;
  /// True after the end of the stream, with a correct checksum.
  virtual bool ended() const = 0;

  static std::unique_ptr<GzipDecoder> create();
};

/// Compresses `bytes` to one gzip stream.
std::string gzip(std::string_view bytes);

}  // namespace varda::codec
