// Shamir's secret sharing (Communications of the ACM 22, 1979), byte by byte over GF(2^8) with the
// polynomial x^8 + x^4 + x^3 + x + 1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "privacy/key_agreement.h"

namespace varda::privacy {

inline constexpr std::size_t kSharesMax = 255;

struct Share {
  std::uint8_t x = 0;  // from 1
  Key y{};
  friend bool operator==(const Share&, const Share&) = default;
};

/// `count` shares with x = 1, 2, …; any `threshold` of them give the secret, fewer say nothing.
/// CHECKs 1 <= threshold <= count <= kSharesMax.
std::vector<Share> split(const Key& secret, std::size_t threshold, std::size_t count);
/// The secret of the first `threshold` shares. Wrong shares give another secret without an error.
/// kInvalid: too few shares, or an x that is 0 or occurs twice.
Result<Key> join_shares(std::span<const Share> shares, std::size_t threshold);

}  // namespace varda::privacy
