// Where the bytes are that matter to delimited text: 64 bytes at a time, a bit each. The widest instructions of the machine do it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace varda::dataset {

inline constexpr std::size_t kBlockBytes = 64;

/// Bit i tells about byte i of a block.
struct Masks {
  std::uint64_t quote, delimiter, line_feed, carriage_return, nul;
};

/// Of `blocks` blocks from `bytes` on. A quote of '\0' is never found.
void find_masks(const char* bytes, std::size_t blocks, char delimiter, char quote, Masks* out);

/// The same, the plain way: what the others are checked against.
void find_masks_plain(const char* bytes, std::size_t blocks, char delimiter, char quote, Masks* out);

/// Bit i: whether an odd number of the bits 0 to i are set.
inline std::uint64_t prefix_xor(std::uint64_t bits) {
  for (int shift = 1; shift < 64; shift *= 2) bits ^= bits << shift;
  return bits;
}

}  // namespace varda::dataset
