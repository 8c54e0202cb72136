// Keys that sign model versions, and the check of a version's signature.
//
// A signature covers one line, which fixes which bytes are which version of which model. So a
// signature is invalid for another model or another version:
//
//   varda-model-v1 digits 4 e84f…\n        modelName, version, sha256
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/ai/inference_model.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "codec/digest.h"
#include "codec/ed25519.h"
#include "codec/minisign.h"
#include "hosting/placement.h"

namespace varda::hosting {

/// A version as signed. Borrows all members.
struct SignedVersion {
  std::string_view model;  // spec.modelName of an InferenceModel, metadata.name of a Model
  std::string_view version, sha256;
  /// Base64 of 64 bytes of Ed25519, or the text of a .minisig file; "": none.
  std::string_view signature = {};

  std::string line() const;
};

/// The operator's list of keys. Constant; thread-safe.
class ModelKeys {
 public:
  /// One key on each line: base64 of 32 bytes, a public key of minisign, or a PEM block. Lines that
  /// begin with # or "untrusted comment:" are comments. kInvalid names the wrong line; a list
  /// without a key is wrong too.
  static Result<std::shared_ptr<const ModelKeys>> parse(std::string_view text);

  /// Absent: a key of the list signed the version. Else the problem SignatureRefused.
  std::optional<Problem> refusal(const SignedVersion& version) const;
  std::size_t size() const { return keys_.size(); }

 private:
  struct Key {
    std::optional<codec::MinisignKeyId> id;  // absent: not a key of minisign
    codec::Ed25519PublicKey key;
  };
  std::string check(const SignedVersion& version) const;

  std::vector<Key> keys_;
  mutable Mutex mutex_;
  /// Results by digest of line and signature: work lists are planned often.
  mutable std::map<codec::Sha256, std::string> checked_ GUARDED_BY(mutex_);
};

/// The problem of an entry in the model's manifest. Absent: the entry is signed, or `keys` is null.
std::optional<Problem> signature_problem(const api::InferenceModel& model,
                                         const api::ManifestEntry& entry, const ModelKeys* keys);

/// The current list of keys, which may change while the operator runs. Thread-safe.
class ModelKeySource {
 public:
  virtual ~ModelKeySource() = default;
  virtual std::shared_ptr<const ModelKeys> keys() = 0;  // never null
};

/// Objects are reconciled again after this time, because no watch reports a change of the keys.
constexpr Duration kKeysAgain = std::chrono::minutes(1);

}  // namespace varda::hosting
