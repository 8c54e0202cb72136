// Where the bytes are that matter to delimited text: 64 bytes at a time, a bit each. The widest instructions of the machine do it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace varda::dataset {

inline constexpr std::size_t kBlockBytes = 64;

/// Bit i tells about byte i of a block.
struct Masks {
  std::uint64_t quote, delimiter, line_feed, carriage_return, nul;
  std::uint64_t quoted;  // whether an odd number of quotes stand at it and before it in the block
  friend bool operator==(const Masks&, const Masks&) = default;
};

/// Of `blocks` blocks from `bytes` on. A quote of '\0' is never found.
using FindMasks = void (*)(const char* bytes, std::size_t blocks, char delimiter, char quote, Masks* out);

/// The plain way, on any machine: what the others are checked against.
void find_masks_plain(const char* bytes, std::size_t blocks, char delimiter, char quote, Masks* out);

struct NamedFindMasks {
  std::string_view name;
  FindMasks find;
};
/// What this machine can run, the plain one first and the quickest last.
const std::vector<NamedFindMasks>& all_find_masks();

/// Bit i: whether an odd number of the bits 0 to i are set.
inline std::uint64_t prefix_xor(std::uint64_t bits) {
  for (int shift = 1; shift < 64; shift *= 2) bits ^= bits << shift;
  return bits;
}

}  // namespace varda::dataset
