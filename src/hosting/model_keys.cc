#include "hosting/model_keys.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace varda::hosting {

namespace {

constexpr std::size_t kKeysMax = 256;       // a signature without a key id is tried with each key
constexpr std::size_t kCheckedMax = 16384;  // results; beyond it, all are forgotten
constexpr std::string_view kPemBegin = "-----BEGIN ", kPemEnd = "-----END ";
constexpr std::string_view kMinisignComment = "untrusted comment:";

// A blank would let one line mean two versions.
bool is_one_word(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

}  // namespace

std::string SignedVersion::line() const {
  std::string out = "varda-model-v1 ";
  out.append(model).append(" ").append(version).append(" ").append(sha256).append("\n");
  return out;
}

Result<std::shared_ptr<const ModelKeys>> ModelKeys::parse(std::string_view text) {
  auto out = std::make_shared<ModelKeys>();
  std::string pem;  // the lines of a block that has not ended
  int number = 0;
  for (const std::string_view whole : split(text, '\n')) {
    const std::string at = "line " + std::to_string(++number);
    const std::string_view line = trim(whole);
    if (!pem.empty() || line.starts_with(kPemBegin)) {
      pem.append(line).append("\n");
      if (!line.starts_with(kPemEnd)) continue;
      TRY(const codec::Ed25519PublicKey key, codec::Ed25519PublicKey::from_pem(pem).context(at));
      out->keys_.push_back({{}, key});
      pem.clear();
    } else if (!line.empty() && !line.starts_with('#') && !line.starts_with(kMinisignComment)) {
      const auto bytes = codec::unbase64(line);
      const std::size_t size = bytes.ok() ? bytes->size() : 0;
      if (const auto raw = codec::Ed25519PublicKey::from_bytes(size == 32 ? *bytes : "");
          raw.ok()) {
        out->keys_.push_back({{}, *raw});
      } else if (const auto key = codec::MinisignPublicKey::from_bytes(size == 42 ? *bytes : "");
                 key.ok()) {
        out->keys_.push_back({key->id, key->key});
      } else {
        return Error(Code::kInvalid, at +
                                         ": must be a public key: base64 of 32 bytes of Ed25519, a "
                                         "key of minisign, or a PEM block");
      }
    }
    if (out->keys_.size() > kKeysMax)
      return Error(Code::kInvalid,
                   at + ": there are more than " + std::to_string(kKeysMax) + " keys");
  }
  if (!pem.empty()) return Error(Code::kInvalid, "the last PEM block has no end");
  if (out->keys_.empty()) return Error(Code::kInvalid, "there is no key");
  return std::shared_ptr<const ModelKeys>(std::move(out));
}

std::string ModelKeys::check(const SignedVersion& version) const {
  const std::string_view text = trim(version.signature);
  if (text.empty()) return "has no signature: `varda sign` makes one";
  for (const std::string_view word : {version.model, version.version, version.sha256}) {
    if (!is_one_word(word))
      return "cannot be signed: model name, version and sha256 must be words without blanks";
  }
  const std::string line = version.line();
  const std::string made_for = " did not sign the line \"" + line.substr(0, line.size() - 1) + "\"";
  if (text.starts_with(kMinisignComment)) {
    const auto signature = codec::MinisignSignature::parse(text);
    if (!signature.ok()) return "has a malformed signature: " + signature.error().message();
    const std::string id = codec::to_string(signature->key_id);
    bool known = false;
    for (const Key& key : keys_) {
      if (key.id && *key.id != signature->key_id) continue;
      if (signature->verifies(key.key, line)) return "";
      known = known || key.id;
    }
    if (!known)
      return "is signed by the key " + id + ", which is not in the operator's list (--model-keys)";
    return "has a bad signature: key " + id + made_for;
  }
  const auto signature = codec::unbase64(text);
  if (!signature.ok() || signature->size() != codec::kEd25519SignatureBytes)
    return "has a malformed signature: must be base64 of 64 bytes, or the text of a .minisig file";
  for (const Key& key : keys_) {
    if (codec::verify(key.key, line, *signature)) return "";
  }
  return "has a bad signature: the keys of the operator's list (--model-keys)" + made_for;
}

std::optional<Problem> ModelKeys::refusal(const SignedVersion& version) const {
  const std::string line = version.line();
  // The digest of the line has a fixed size, so line and signature cannot run into each other.
  const codec::Sha256 key =
      codec::Sha256::of(codec::Sha256::of(line).hex() + std::string(version.signature));
  std::string why;
  {
    const MutexLock lock(mutex_);
    if (const auto found = checked_.find(key); found != checked_.end()) {
      why = found->second;
      if (why.empty()) return {};
    }
  }
  if (why.empty()) {
    why = check(version);
    const MutexLock lock(mutex_);
    if (checked_.size() >= kCheckedMax) checked_.clear();
    checked_.emplace(key, why);
  }
  if (why.empty()) return {};
  return Problem{"SignatureRefused", "version " + std::string(version.version) + " " + why};
}

std::optional<Problem> signature_problem(const api::InferenceModel& model,
                                         const api::ManifestEntry& entry, const ModelKeys* keys) {
  if (keys == nullptr) return {};
  return keys->refusal({.model = model.spec.model_name,
                        .version = entry.version,
                        .sha256 = entry.sha256sum,
                        .signature = entry.signature});
}

}  // namespace varda::hosting
