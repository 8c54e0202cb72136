// Reasons for a missing artifact, as users see them in EdgeNode and InferenceModel conditions.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>

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
class [[nodiscard]] Outcome {
 public:
  Outcome(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: conversions are the point
  Outcome(Failure failure) : state_(std::in_place_index<1>, std::move(failure)) {}  // NOLINT
  bool ok() const { return state_.index() == 0; }
  T& value() {
    CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const {
    CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  const T& operator*() const { return value(); }
  const T* operator->() const { return &value(); }
  const Failure& failure() const {
    CHECK(!ok());
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Failure> state_;
};

}  // namespace varda::artifact
