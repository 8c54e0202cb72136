// Keys of secure aggregation: X25519 (RFC 7748), HKDF-SHA256 (RFC 5869), AES-256-GCM (NIST SP
// 800-38D). OpenSSL computes them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::privacy {

using Key = std::array<std::uint8_t, 32>;

/// Overwrites the key so that the compiler cannot leave it out.
void wipe(Key& key);

/// 32 bytes of the operating system.
Key random_key();

/// A key of X25519 for one round. The destructor wipes it.
class AgreementKey {
 public:
  static AgreementKey generate();
  /// Any 32 bytes are a private key of X25519.
  static AgreementKey of(const Key& secret);
  ~AgreementKey();
  AgreementKey(const AgreementKey&) = delete;
  AgreementKey& operator=(const AgreementKey&) = delete;
  AgreementKey(AgreementKey&&) noexcept = default;
  AgreementKey& operator=(AgreementKey&&) noexcept = default;

  const Key& secret() const { return secret_; }
  const Key& public_key() const { return public_; }
  /// The key that both owners derive for one purpose, such as "mask TASK". kInvalid: `peer` is a
  /// point of small order, so the secret would be known to everyone.
  Result<Key> shared(const Key& peer, std::string_view purpose) const;

 private:
  AgreementKey() = default;
  Key secret_{}, public_{};
};

/// HKDF-SHA256 without a salt.
Key derive(std::string_view secret, std::string_view purpose);

/// nonce (12 bytes), ciphertext, tag (16 bytes). The nonce is random: few messages for each key.
std::string seal(const Key& key, std::string_view plaintext, std::string_view associated);
/// kCorrupt: another key, other associated data, or changed bytes.
Result<std::string> open_sealed(const Key& key, std::string_view sealed,
                                std::string_view associated);

}  // namespace varda::privacy
