#include "artifact/failure.h"

#include <array>

namespace varda::artifact {

std::string_view to_string(Reason reason) {
  static constexpr std::array<std::string_view, 10> kNames = {
      "DownloadFailed",     "DigestMismatch",     "UnsafeArchive",
      "BadLayout",          "DiskFull",           "SourceForbidden",
      "CredentialsMissing", "CredentialsInvalid", "CredentialsForbidden",
      "Cancelled"};
  return kNames[static_cast<std::size_t>(reason)];
}

Retry retry_of(Reason reason) {
  switch (reason) {
    case Reason::kDownloadFailed:
    case Reason::kDiskFull:
    case Reason::kCredentialsMissing:  // a changed Secret or namespace label heals these
    case Reason::kCredentialsInvalid:
    case Reason::kCredentialsForbidden:
    case Reason::kCancelled:
      return Retry::kBackoff;
    case Reason::kDigestMismatch:
    case Reason::kSourceForbidden:  // a name may later resolve to an allowed address
      return Retry::kHourly;
    case Reason::kUnsafeArchive:
    case Reason::kBadLayout:
      return Retry::kOnChange;
  }
  return Retry::kBackoff;
}

}  // namespace varda::artifact
