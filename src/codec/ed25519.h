// Ed25519 signatures (RFC 8032), and PEM files with such keys (RFC 8410). OpenSSL computes them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::codec {

constexpr std::size_t kEd25519SignatureBytes = 64;

struct Ed25519PublicKey {
  std::array<std::uint8_t, 32> bytes{};
  /// kInvalid: not 32 bytes.
  static Result<Ed25519PublicKey> from_bytes(std::string_view bytes);
  /// The first block "PUBLIC KEY" of the text. kInvalid: no such block, or another algorithm.
  static Result<Ed25519PublicKey> from_pem(std::string_view pem);
  /// 44 characters.
  std::string base64() const;
  friend auto operator<=>(const Ed25519PublicKey&, const Ed25519PublicKey&) = default;
};

/// True: the owner of `key` signed exactly these bytes. False also for a signature of another size.
bool verify(const Ed25519PublicKey& key, std::string_view message, std::string_view signature);

/// A key that signs. OpenSSL clears its memory at the end.
class Ed25519PrivateKey {
 public:
  static Ed25519PrivateKey generate();
  /// The first block "PRIVATE KEY" of the text. kInvalid: no such block, another algorithm, or a
  /// key with a passphrase.
  static Result<Ed25519PrivateKey> from_pem(std::string_view pem);
  ~Ed25519PrivateKey();
  Ed25519PrivateKey(Ed25519PrivateKey&&) noexcept;
  Ed25519PrivateKey& operator=(Ed25519PrivateKey&&) noexcept;

  std::string pem() const;  // PKCS #8, without a passphrase
  Ed25519PublicKey public_key() const;
  /// 64 bytes.
  std::string sign(std::string_view message) const;

 private:
  struct Impl;
  explicit Ed25519PrivateKey(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace varda::codec
