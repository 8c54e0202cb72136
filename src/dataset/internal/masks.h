// Finds the significant bytes of delimited text, 64 bytes at a time, one bit each. Uses the
// machine's widest instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace varda::dataset {

inline constexpr std::size_t kBlockBytes = 64;

/// Bit i describes byte i of a block.
struct Masks {
  std::uint64_t quote, delimiter, line_feed, carriage_return, nul;
  std::uint64_t quoted;  // bit i: an odd number of quotes among bytes 0 to i of the block
  friend bool operator==(const Masks&, const Masks&) = default;
};

/// Fills `out` for `blocks` blocks from `bytes` on. A quote of '\0' is never found.
using FindMasks = void (*)(const char* bytes, std::size_t blocks, char delimiter, char quote,
                           Masks* out);

/// The plain version for any machine; the reference for the others.
void find_masks_plain(const char* bytes, std::size_t blocks, char delimiter, char quote,
                      Masks* out);

struct NamedFindMasks {
  std::string_view name;
  FindMasks find;
};
/// All versions that this machine can run, the plain one first, the fastest last.
const std::vector<NamedFindMasks>& all_find_masks();

/// Bit i: an odd number of the bits 0 to i are set.
inline std::uint64_t prefix_xor(std::uint64_t bits) {
  for (int shift = 1; shift < 64; shift *= 2) bits ^= bits << shift;
  return bits;
}

}  // namespace varda::dataset
