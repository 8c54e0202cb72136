// Reasons for a missing artifact, as users see them in EdgeNode and InferenceModel conditions.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace varda::artifact {

enum class Reason : std::uint8_t {
  kDownloadFailed,  // network, HTTP status, a page where an archive should be, a fault of the local
                    // disk
  kDigestMismatch,  // all bytes arrived but differ; the message has both digests
  kUnsafeArchive,   // unreadable or hostile: paths, links, devices, duplicates, bombs, sizes
  kBadLayout,       // the root does not fit the framework
  kDiskFull,
  kSourceForbidden,       // a scheme, path or address that this node's administrator did not allow
  kCredentialsMissing,    // the Secret is missing, or has no known key
  kCredentialsInvalid,    // the Secret does not name the source's host, or the source is plain http
  kCredentialsForbidden,  // the Secret exists, but this node may not read it
  kCancelled,             // the caller's context ended; downloaded bytes are kept
};

/// "DigestMismatch", as in conditions.
std::string_view to_string(Reason reason);

/// When a retry can help.
enum class Retry : std::uint8_t { kBackoff, kHourly, kOnChange };
Retry retry_of(Reason reason);

struct Failure {
  Reason reason = Reason::kDownloadFailed;
  Error error;
  std::chrono::seconds retry_after{0};  // the smallest Retry-After if every source sent one; else 0
};

/// A value, or the reason why it is missing.
template <typename T>
using Outcome = Result<T, Failure>;

}  // namespace varda::artifact
