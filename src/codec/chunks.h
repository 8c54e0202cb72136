// Content-defined chunks: bytes are cut where their content says so, so that equal content gives
// equal chunks wherever it lies. A list of chunks shows which parts of two archives are equal.
//
// The cuts follow FastCDC: Xia et al., "FastCDC: a Fast and Efficient Content-Defined Chunking
// Approach for Data Deduplication", USENIX ATC 2016. docs/design/023-deltas.md has the list's
// format.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/digest.h"

namespace varda::codec {

/// Every chunk but the last has at least the minimum.
inline constexpr std::size_t kChunkBytesMin = 4 << 10, kChunkBytesAverage = 24 << 10,
                             kChunkBytesMax = 64 << 10;

/// The first half of the SHA-256 of a chunk. It only finds equal chunks: the digest of the whole
/// archive decides whether they were put together correctly.
using ChunkHash = std::array<std::uint8_t, 16>;
ChunkHash chunk_hash(std::string_view bytes);

struct Chunk {
  std::uint32_t bytes = 0;
  ChunkHash hash{};
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

/// Cuts a stream into chunks, whatever the size of the pieces. Not thread-safe.
class ChunkSplitter {
 public:
  using Sink = std::function<void(const Chunk&)>;
  explicit ChunkSplitter(Sink sink) : sink_(std::move(sink)) {}
  void update(std::string_view bytes);
  /// Ends the last chunk; call once.
  void finish();

 private:
  void end_chunk();

  const Sink sink_;
  std::optional<Sha256Stream> hash_ = Sha256Stream();
  std::size_t bytes_ = 0;   // of the current chunk
  std::uint64_t gear_ = 0;  // rolling hash over the last 64 bytes
};

/// The chunks of one archive, in order.
struct ChunkList {
  std::uint64_t bytes = 0;  // of the archive
  Sha256 digest;            // of the archive
  std::vector<Chunk> chunks;
  friend bool operator==(const ChunkList&, const ChunkList&) = default;
};

/// The first bytes of every list.
inline constexpr std::string_view kChunkListMagic = "VARDACH1";
/// Archives below this size gain too little from a list.
inline constexpr std::uint64_t kDeltaBytesMin = 1 << 20;
/// Limit of a list: 16 MiB describe an archive of 18 GiB.
inline constexpr std::uint64_t kChunkListBytesMax = 16 << 20;

std::string write_chunk_list(const ChunkList& list);
/// The same in parts: the head of a list, then each chunk.
std::string chunk_list_head(std::uint64_t archive_bytes, const Sha256& digest);
void append_chunk(std::string& out, const Chunk& chunk);
/// kCorrupt: not a list, or chunks that do not add up to the archive. The digest is unchecked.
Result<ChunkList> parse_chunk_list(std::string_view text);

}  // namespace varda::codec
