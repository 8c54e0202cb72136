#include "client_settings.h"

#include <limits>
#include <memory>
#include <utility>

#include "codec/digest.h"
#include "codec/ed25519.h"
#include "codec/settings_reader.h"

namespace varda::trainapp {

using codec::Json;
using codec::SettingsReader;

namespace {

constexpr std::uint64_t kKeyBytesMax = 64 << 10;

}  // namespace

Result<ClientSettings> parse_client_settings(const Json& json) {
  ClientSettings out;
  if (json.is_null()) return out;
  Status status;
  SettingsReader in(json, "", status);
  if (const Json* when = in.object("when")) {
    TRY(out.when, participant::parse_when(*when).context("when"));
  }
  in.integer("bytesPerSecond", out.bytes_per_second, 0, std::numeric_limits<std::int64_t>::max());
  in.integer("nice", out.nice, 0, 19);
  in.integer("threads", out.threads, 0, 1024);
  in.boolean("keepOptimizer", out.keep_optimizer);
  if (const Json* privacy = in.object("privacy")) {
    PrivacySettings& read = out.privacy.emplace();
    SettingsReader members(*privacy, "privacy", status);
    members.number("clipNorm", read.clip_norm, {0, 1e9, codec::kAboveLow});
    members.number("noise", read.noise, {0, 1e9});
    members.end();
  }
  in.text("signingKeyFile", out.signing_key_file);
  in.end();
  TRY_VOID(std::move(status));
  return out;
}

Result<participant::SecureIdentity> secure_identity(os::FileSystem& fs, const Json& json,
                                                    const std::string& signing_key_file) {
  participant::SecureIdentity out;
  if (!json.is_object()) return out;
  out.required = true;
  for (const Json& signer : json["signers"].as_array()) {
    const auto key = codec::unbase64(signer.as_string());
    if (!key.ok() || !codec::Ed25519PublicKey::from_bytes(*key).ok())
      return Error(Code::kInvalid, "signers must be Ed25519 public keys, 32 bytes each, in base64");
    out.trusted_signers.insert(*key);
  }
  if (signing_key_file.empty()) {
    if (out.trusted_signers.empty()) return out;
    return Error(Code::kInvalid, "signers need a key of this client: client.signingKeyFile");
  }
  TRY(const std::string pem, os::read_file(fs, signing_key_file, kKeyBytesMax));
  TRY(auto key, codec::Ed25519PrivateKey::from_pem(pem).context(signing_key_file));
  out.signing_key = std::make_shared<const codec::Ed25519PrivateKey>(std::move(key));
  return out;
}

}  // namespace varda::trainapp
