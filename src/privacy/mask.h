// Streams of pseudorandom bytes from a key, by AES-256 in counter mode (NIST SP 800-38A), and the
// masks and the noise made of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "privacy/key_agreement.h"

namespace varda::privacy {

/// The key stream of AES-256-CTR from the block `first` on; a block has 16 bytes. A key makes one
/// stream. Not thread-safe.
class KeyStream {
 public:
  explicit KeyStream(const Key& key, std::uint64_t first = 0);
  ~KeyStream();
  void fill(std::span<std::uint8_t> out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

enum class Sign { kPlus, kMinus };
/// Adds or subtracts the key's mask, modulo 2^32 for each value.
void add_mask(const Key& key, Sign sign, std::span<std::uint32_t> values);

/// Gaussian noise from a secret seed, so that a repeated round gets the same noise. Box and Muller
/// 1958, from 53 random bits for each of the two uniform numbers. Not thread-safe.
class Noise {
 public:
  /// From number `first` of the seed's sequence on; `first` is even.
  explicit Noise(const Key& seed, std::uint64_t first = 0) : stream_(seed, first / 2) {}
  /// Standard normal.
  double next();

 private:
  void refill();

  static constexpr std::size_t kPairs = 256;
  KeyStream stream_;
  double ready_[2 * kPairs];
  std::size_t used_ = 2 * kPairs;
};

}  // namespace varda::privacy
