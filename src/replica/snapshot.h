// A snapshot: the content of a file or a folder at one moment, as hashed blocks.
//
//   encoded:  "varda-snapshot-1\n", u32 bytes of a block, then for each file, by path:
//             u32 length of the path, the path, u64 size, 32 bytes SHA-256 for each block
//             (little-endian)
//
// The SHA-256 of that text is the snapshot's name, so nodes with the same files use the same name.
// All blocks have one length, except a shorter last block of a file. An empty file has no blocks.
// Times, owners and modes are not included.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/digest.h"

namespace varda::replica {

inline constexpr std::uint32_t kBlockBytes =
    1u << 20;  // default; allowed are powers of two from 1 KiB to 16 MiB

/// Limits on memory that a peer can make this node use: about 64 MiB.
struct Limits {
  std::size_t files_max = 200'000;
  std::uint64_t blocks_max = 1'000'000;  // 1 TB
  std::size_t path_bytes_max = 1024;
};

struct SnapshotFile {
  std::string path;  // below the root, with '/' between components; "" if the root is the file
  std::uint64_t size = 0;
  std::vector<codec::Sha256> blocks;
  friend bool operator==(const SnapshotFile&, const SnapshotFile&) = default;
};

/// The number of blocks of a file, and the length of one block.
constexpr std::uint64_t blocks_of(std::uint64_t size, std::uint64_t block_bytes) {
  return size / block_bytes + (size % block_bytes != 0 ? 1 : 0);
}
constexpr std::uint64_t length_of(std::uint64_t block, std::uint64_t size,
                                  std::uint64_t block_bytes) {
  const std::uint64_t rest = size - block * block_bytes;
  return rest < block_bytes ? rest : block_bytes;
}

struct Snapshot {
  std::uint32_t block_bytes = kBlockBytes;
  std::vector<SnapshotFile> files;  // sorted by path, unique

  std::uint64_t bytes() const;
  std::string encode() const;
  codec::Sha256 id() const { return codec::Sha256::of(encode()); }
  /// kInvalid: not a snapshot; names the error. Every returned path is safe below any folder. Paths
  /// are relative, sorted, without "..", ".", empty components and NUL, and no path is a folder of
  /// another. kExhausted: beyond the limits.
  static Result<Snapshot> decode(std::string_view text, const Limits& limits = {});
  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

/// The order of files in a snapshot: by components. So "a/b" comes before "a.txt", and the files of
/// a folder are adjacent.
struct PathOrder {
  bool operator()(std::string_view a, std::string_view b) const;
  using is_transparent = void;
};

/// "", or the reason why a snapshot must not contain that path.
std::string check_path(std::string_view path, const Limits& limits = {});

}  // namespace varda::replica
