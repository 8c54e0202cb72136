#include "codec/minisign.h"

#include <algorithm>
#include <openssl/evp.h>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "codec/digest.h"

namespace varda::codec {

namespace {

constexpr std::string_view kPure = "Ed", kPrehashed = "ED";
constexpr std::string_view kUntrusted = "untrusted comment:", kTrusted = "trusted comment: ";
constexpr std::size_t kHead = 2 + std::tuple_size_v<MinisignKeyId>;  // algorithm and key id

MinisignKeyId id_in(std::string_view bytes) {
  MinisignKeyId id{};
  std::copy_n(bytes.begin() + kPure.size(), id.size(), id.begin());
  return id;
}

std::string blake2b512(std::string_view bytes) {
  std::string out(64, '\0');
  unsigned size = 0;
  CHECK(EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(out.data()), &size,
                   EVP_blake2b512(), nullptr) == 1 &&
        size == out.size());
  return out;
}

Error wrong_line(int line, std::string_view expected) {
  return Error(Code::kInvalid, "line " + std::to_string(line) + " of a minisign signature must " +
                                   std::string(expected));
}

}  // namespace

std::string to_string(const MinisignKeyId& id) {
  std::string out = hex(std::string(id.rbegin(), id.rend()));  // a little-endian number
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'a' ? static_cast<char>(c - 32) : c; });
  return out;
}

Result<MinisignPublicKey> MinisignPublicKey::from_bytes(std::string_view bytes) {
  MinisignPublicKey out;
  if (bytes.size() != kHead + out.key.bytes.size() || !bytes.starts_with(kPure))
    return Error(Code::kInvalid, "a public key of minisign has 42 bytes and begins with \"Ed\"");
  out.id = id_in(bytes);
  TRY(out.key, Ed25519PublicKey::from_bytes(bytes.substr(kHead)));
  return out;
}

Result<MinisignSignature> MinisignSignature::parse(std::string_view text) {
  std::vector<std::string_view> lines = split(text, '\n');
  for (std::string_view& line : lines) {
    if (line.ends_with('\r')) line.remove_suffix(1);
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (lines.size() != 4)
    return Error(Code::kInvalid,
                 "a minisign signature has 4 lines, not " + std::to_string(lines.size()));
  if (!lines[0].starts_with(kUntrusted)) return wrong_line(1, "begin with \"untrusted comment:\"");
  const auto head = unbase64(lines[1]);
  const bool sized = head.ok() && head->size() == kHead + kEd25519SignatureBytes;
  if (!sized || (!head->starts_with(kPure) && !head->starts_with(kPrehashed)))
    return wrong_line(2, "be the base64 of 74 bytes that begin with \"Ed\" or \"ED\"");
  if (!lines[2].starts_with(kTrusted)) return wrong_line(3, "begin with \"trusted comment: \"");
  auto global = unbase64(lines[3]);
  if (!global.ok() || global->size() != kEd25519SignatureBytes)
    return wrong_line(4, "be the base64 of 64 bytes");
  MinisignSignature out;
  out.key_id = id_in(*head);
  out.prehashed = head->starts_with(kPrehashed);
  out.signature = head->substr(kHead);
  out.trusted_comment = lines[2].substr(kTrusted.size());
  out.global_signature = std::move(*global);
  return out;
}

bool MinisignSignature::verifies(const Ed25519PublicKey& key, std::string_view message) const {
  const std::string digest = prehashed ? blake2b512(message) : "";
  return verify(key, prehashed ? digest : message, signature) &&
         verify(key, signature + trusted_comment, global_signature);
}

}  // namespace varda::codec
