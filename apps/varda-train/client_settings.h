// Settings of a federated client: when and how much it may work. In a pod they are the member
// `client` of spec.federated, on a desk they are flags.
//
//   client: {when: {window: {start: "22:00", end: "06:00"}, power: mains},
//            bytesPerSecond: 250000, nice: 10, threads: 1, privacy: {clipNorm: 1, noise: 1.1}}
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "codec/json.h"
#include "os/file_system.h"
#include "participant/client.h"
#include "participant/conditions.h"

namespace varda::trainapp {

/// DP-SGD on this client.
struct PrivacySettings {
  double clip_norm = 1, noise = 1;
};

struct ClientSettings {
  participant::When when;
  std::int64_t bytes_per_second = 0;  // in each direction; 0: no limit
  std::int64_t nice = 0;
  std::int64_t threads = 0;  // 0: the trainer's
  bool keep_optimizer = false;
  std::optional<PrivacySettings> privacy;
  std::string signing_key_file;  // Ed25519 key for secure aggregation, as PEM; "": none
};

/// Absent members have their defaults. kInvalid: a member is unknown or wrong; the message has the
/// path.
Result<ClientSettings> parse_client_settings(const codec::Json& json);

/// The demands on secure aggregation: the member `secureAggregation` of spec.federated, or the flag
/// --secure. Only `signers` is read. Null: none. kInvalid: a wrong key, or signers without an own key.
Result<participant::SecureIdentity> secure_identity(os::FileSystem& fs, const codec::Json& json,
                                                    const std::string& signing_key_file);

}  // namespace varda::trainapp
