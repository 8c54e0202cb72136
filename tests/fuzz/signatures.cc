// Signatures of model versions: no text passes as the signature of a new key. Lists of keys and PEM
// files are read or refused.
//
// Input: a byte that chooses the parser, and its text.
#include <string>

#include "base/check.h"
#include "codec/ed25519.h"
#include "codec/minisign.h"
#include "hosting/model_keys.h"
#include "input.h"

namespace {

using namespace varda;  // NOLINT: a program of one file

void check_minisign(std::string_view text) {
  const auto signature = codec::MinisignSignature::parse(text);
  if (!signature.ok()) return;
  CHECK(signature->signature.size() == codec::kEd25519SignatureBytes);
  CHECK(signature->global_signature.size() == codec::kEd25519SignatureBytes);
  CHECK(codec::to_string(signature->key_id).size() == 16);
}

void check_refusal(std::string_view text) {
  // The private key is forgotten at once, so no input has its signature.
  static const auto keys =
      hosting::ModelKeys::parse(codec::Ed25519PrivateKey::generate().public_key().base64()).value();
  static const std::string digest(64, 'a');
  const auto problem =
      keys->refusal({.model = "digits", .version = "4", .sha256 = digest, .signature = text});
  CHECK(problem && problem->reason == "SignatureRefused" && !problem->message.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::uint8_t parser = input.byte();
  const std::string_view text = input.rest();
  switch (parser % 4) {
    case 0:
      check_minisign(text);
      break;
    case 1:
      check_refusal(text);
      break;
    case 2:
      if (const auto keys = hosting::ModelKeys::parse(text); keys.ok()) CHECK((*keys)->size() > 0);
      break;
    default:
      if (const auto key = codec::Ed25519PrivateKey::from_pem(text); key.ok())
        CHECK(codec::verify(key->public_key(), "text", key->sign("text")));
  }
  return 0;
}
