// A snapshot: what a file or a folder holds at one moment, as hashed blocks.
//
//   encoded:  "varda-snapshot-1\n", u32 bytes of a block, then for each file, by path:
//             u32 length of the path, the path, u64 size, 32 bytes SHA-256 for each block       (little-endian)
//
// The SHA-256 of that text is the snapshot's name: two nodes that have the same files name the same snapshot. Blocks are
// of one length, the last one of a file is shorter; an empty file has none. Times, owners and modes are no part of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/digest.h"

namespace varda::replica {

inline constexpr std::uint32_t kBlockBytes = 1u << 20;  // unless somebody chose otherwise: a power of two from 1 KiB to 16 MiB

/// Bounds on what a peer can make us hold: some 64 MiB.
struct Limits {
  std::size_t files_max = 200'000;
  std::uint64_t blocks_max = 1'000'000;  // 1 TB
  std::size_t path_bytes_max = 1024;
};

struct SnapshotFile {
  std::string path;  // below the root, '/' between its components; "" where the root is that file
  std::uint64_t size = 0;
  std::vector<codec::Sha256> blocks;
  friend bool operator==(const SnapshotFile&, const SnapshotFile&) = default;
};

/// How many blocks a file of that size has, and how long one of them is.
constexpr std::uint64_t blocks_of(std::uint64_t size, std::uint64_t block_bytes) {
  return size / block_bytes + (size % block_bytes != 0 ? 1 : 0);
}
constexpr std::uint64_t length_of(std::uint64_t block, std::uint64_t size, std::uint64_t block_bytes) {
  const std::uint64_t rest = size - block * block_bytes;
  return rest < block_bytes ? rest : block_bytes;
}

struct Snapshot {
  std::uint32_t block_bytes = kBlockBytes;
  std::vector<SnapshotFile> files;  // by path, each once

  std::uint64_t bytes() const;
  std::string encode() const;
  codec::Sha256 id() const { return codec::Sha256::of(encode()); }
  /// kInvalid: no snapshot; names what is wrong. Every path of what it returns is safe below any folder: relative, without "..",
  /// ".", empty components and NUL, in order, none a folder of another. kExhausted: beyond the limits.
  static Result<Snapshot> decode(std::string_view text, const Limits& limits = {});
  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

/// The order of files in a snapshot: by components, so that "a/b" comes before "a.txt" and what lies in one folder stands together.
struct PathOrder {
  bool operator()(std::string_view a, std::string_view b) const;
  using is_transparent = void;
};

/// "" or why that path may not stand in a snapshot.
std::string check_path(std::string_view path, const Limits& limits = {});

}  // namespace varda::replica
