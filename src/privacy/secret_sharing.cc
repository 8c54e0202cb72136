#include "privacy/secret_sharing.h"

#include <array>
#include <string>

#include "base/check.h"

namespace varda::privacy {

namespace {

/// Multiplies without branches and tables that depend on secrets.
std::uint8_t multiply(std::uint8_t a, std::uint8_t b) {
  unsigned product = 0, factor = a;
  for (int bit = 0; bit < 8; ++bit) {
    product ^= factor & (0U - ((b >> bit) & 1U));
    factor = (factor << 1) ^ (0x11BU & (0U - (factor >> 7)));
  }
  return static_cast<std::uint8_t>(product);
}

/// a^254 is 1/a, because the group has 255 elements.
std::uint8_t inverse(std::uint8_t a) {
  std::uint8_t out = 1, square = a;
  for (int bit = 1; bit < 8; ++bit) {
    square = multiply(square, square);
    out = multiply(out, square);
  }
  return out;
}

}  // namespace

std::vector<Share> split(const Key& secret, std::size_t threshold, std::size_t count) {
  CHECK(threshold >= 1 && threshold <= count && count <= kSharesMax);
  // The polynomial of byte i is secret[i] + c1[i] x + c2[i] x^2 + …
  std::vector<Key> coefficients(threshold);
  coefficients[0] = secret;
  for (std::size_t power = 1; power < threshold; ++power) coefficients[power] = random_key();
  std::vector<Share> out(count);
  for (std::size_t n = 0; n < count; ++n) {
    out[n].x = static_cast<std::uint8_t>(n + 1);
    for (std::size_t power = threshold; power-- > 0;) {
      for (std::size_t i = 0; i < secret.size(); ++i)
        out[n].y[i] =
            static_cast<std::uint8_t>(multiply(out[n].y[i], out[n].x) ^ coefficients[power][i]);
    }
  }
  for (Key& key : coefficients) wipe(key);
  return out;
}

Result<Key> join_shares(std::span<const Share> shares, std::size_t threshold) {
  if (threshold < 1 || shares.size() < threshold)
    return Error(Code::kInvalid, "a secret needs " + std::to_string(threshold) + " shares, not " +
                                     std::to_string(shares.size()));
  shares = shares.first(threshold);
  std::array<bool, 256> seen{};
  for (const Share& share : shares) {
    if (share.x == 0 || seen[share.x])
      return Error(Code::kInvalid, "share " + std::to_string(share.x) + " occurs twice or is 0");
    seen[share.x] = true;
  }
  Key secret{};
  for (const Share& share : shares) {
    // Lagrange's polynomial of this share at 0. Subtraction is exclusive or.
    std::uint8_t weight = 1;
    for (const Share& other : shares) {
      if (other.x == share.x) continue;
      weight = multiply(weight,
                        multiply(other.x, inverse(static_cast<std::uint8_t>(other.x ^ share.x))));
    }
    for (std::size_t i = 0; i < secret.size(); ++i)
      secret[i] = static_cast<std::uint8_t>(secret[i] ^ multiply(share.y[i], weight));
  }
  return secret;
}

}  // namespace varda::privacy
