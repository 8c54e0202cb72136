// A gzip stream (RFC 1952) unpacked piece by piece, for HTTP bodies: small state, and never more than was asked for.
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
  /// Takes bytes of the stream and puts what they unpack to behind `out`, until that holds `out_max` bytes; how many bytes it took.
  /// Fewer than given: `out` is full, or the stream has ended. kCorrupt: damaged; nothing more is to be had.
  virtual Result<std::size_t> feed(std::string_view bytes, std::string& out, std::size_t out_max) = 0;
  /// The stream's end, its checksum compared, has been read.
  virtual bool ended() const = 0;

  static std::unique_ptr<GzipDecoder> create();
};

/// The whole of `bytes` as one gzip stream.
std::string gzip(std::string_view bytes);

}  // namespace varda::codec
