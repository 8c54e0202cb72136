// Decodes a gzip stream (RFC 1952, also with several members) piece by piece.
//
// Uses ISA-L if the build found it. ISA-L needs two thirds of zlib's time for model weights and
// checks the same checksums. Otherwise unavailable, and libarchive decodes gzip with zlib.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/archive.h"

namespace varda::codec::internal {

/// Decodes `source`. read() returns the next bytes, empty after the last member. Like gzip(1),
/// ignores trailing bytes that are not a gzip member. kCorrupt: damaged or truncated. Errors of the
/// source are returned unchanged.
class Gunzip {
 public:
  virtual ~Gunzip() = default;
  virtual Result<std::string> read() = 0;
  /// `head`: bytes already read from the source. Null: not in this build.
  static std::unique_ptr<Gunzip> over(std::string head, ByteSource source);
};

}  // namespace varda::codec::internal
