// Signatures and public keys of minisign (https://jedisct1.github.io/minisign/, "Signature format",
// "Public key format"). Reads them; minisign writes them.
//
//   untrusted comment: signature from minisign secret key
//   base64: algorithm (2 bytes: Ed, or ED for prehashed), key id (8), signature (64)
//   trusted comment: timestamp:1795463158 file:line hashed
//   base64: global signature (64), over the signature's 64 bytes and the trusted comment
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/ed25519.h"

namespace varda::codec {

using MinisignKeyId = std::array<std::uint8_t, 8>;
/// 16 hexadecimal digits, as minisign prints them.
std::string to_string(const MinisignKeyId& id);

struct MinisignPublicKey {
  MinisignKeyId id{};
  Ed25519PublicKey key;
  /// 42 bytes: the second line of a .pub file, without base64. kInvalid otherwise.
  static Result<MinisignPublicKey> from_bytes(std::string_view bytes);
};

struct MinisignSignature {
  MinisignKeyId key_id{};
  bool prehashed = false;  // of the BLAKE2b-512 of the message
  std::string signature;   // 64 bytes
  std::string trusted_comment;
  std::string global_signature;  // 64 bytes

  /// The text of a .minisig file. kInvalid names the wrong line.
  static Result<MinisignSignature> parse(std::string_view text);
  /// True: the owner of `key` signed the message and the trusted comment.
  bool verifies(const Ed25519PublicKey& key, std::string_view message) const;
};

}  // namespace varda::codec
