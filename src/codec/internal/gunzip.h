// A gzip stream (RFC 1952, also of several members) unpacked piece by piece.
//
// By ISA-L where the build found it, which unpacks weights in two thirds of the time zlib takes and checks the same checksums; else
// there is none, and libarchive unpacks gzip by zlib itself.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/archive.h"

namespace varda::codec::internal {

/// Reads what `source` unpacks to. Its read() gives the next bytes, empty at the end: the end of the last member; whatever follows
/// that is no gzip member is left unread, as gzip(1) does. kCorrupt: damaged, or cut off. The source's errors are passed on
/// unchanged.
class Gunzip {
 public:
  virtual ~Gunzip() = default;
  virtual Result<std::string> read() = 0;
  /// `head`: bytes of the source that were read already. Null: not in this build.
  static std::unique_ptr<Gunzip> over(std::string head, ByteSource source);
};

}  // namespace varda::codec::internal
