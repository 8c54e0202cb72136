// Random numbers from a secret key: the noise of private training.
//
// The numbers are the ChaCha20 stream of RFC 8439. A generator for simulations would do for the
// distribution, but some gradients are 0. There the noise is visible, and a weak generator would
// reveal all the other noise of the step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace varda::training {

/// The block function of RFC 8439, 2.3: 64 bytes of the stream as 16 little-endian numbers.
std::array<std::uint32_t, 16> chacha20_block(std::span<const std::uint8_t, 32> key,
                                             std::uint32_t counter,
                                             std::span<const std::uint8_t, 12> nonce);

/// The same numbers for the same key and label, on every machine with equal mathematical functions.
/// Each label has an own stream. Not thread-safe.
class KeyStream {
 public:
  KeyStream(std::span<const std::uint8_t, 32> key, std::string_view label);

  std::uint64_t next();
  /// Uniform in [0, 1), with 53 bits.
  double unit();
  /// Normal with mean 0 and deviation 1 (Box and Muller 1958).
  double normal();

 private:
  std::array<std::uint8_t, 32> key_{};
  std::uint64_t block_ = 0;  // the next one
  std::array<std::uint32_t, 16> numbers_{};
  std::size_t used_ = 16;
  double spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace varda::training
