// Plans an upload of which another blob has parts: docs/design/023-deltas.md.
#pragma once

#include <cstdint>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "codec/chunks.h"
#include "net/http.h"
#include "registry/client.h"

namespace varda::registry {

/// The bytes [first, first + length) of a file are the bytes from `base_first` on of its base.
struct SharedPart {
  std::uint64_t first = 0, base_first = 0, length = 0;
  std::uint64_t end() const { return first + length; }
  friend bool operator==(const SharedPart&, const SharedPart&) = default;
};
/// A shorter part is not worth a request.
inline constexpr std::uint64_t kSharedBytesMin = 128 << 10;

/// Downloads the list of a blob in pieces. kNotFound, kCorrupt: there is no usable list.
Result<codec::ChunkList> download_chunk_list(const Context& ctx, net::HttpClient& http,
                                             const Target& target, const codec::Sha256& blob,
                                             std::uint64_t piece_bytes);

/// Reads the `total` bytes once. The parts are in order, and do not overlap. They are as wrong as
/// the list is.
Result<std::vector<SharedPart>> find_shared_parts(const Context& ctx, const ReadAt& read,
                                                  std::uint64_t total,
                                                  const codec::ChunkList& base);

/// One request: `length` bytes of the file, then `copied` bytes of the base.
struct UploadStep {
  std::uint64_t length = 0, copied = 0, copy_first = 0;
};
/// Sends at least one byte, because a piece cannot be empty.
UploadStep next_step(const std::vector<SharedPart>& parts, std::uint64_t offset,
                     std::uint64_t total, std::uint64_t piece_bytes);

}  // namespace varda::registry
