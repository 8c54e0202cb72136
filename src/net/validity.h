// From when to when certificates of our own count, so that neither time nor a wrong clock keeps clients out.
#pragma once

#include <chrono>
#include <string>

#include "base/clock.h"
#include "net/certificates.h"

namespace varda::net {

/// Whole seconds.
struct Validity {
  WallTime not_before, not_after;
};
/// The first moment a clock can show. Certificates of our own servers begin here: a certificate that begins at the time of
/// issue is refused by every machine whose clock is behind, and for long after a first start under a clock that was ahead.
inline constexpr WallTime kClocksBegin{};

/// From kClocksBegin to `span` after `now`. A clock before 2026 is wrong, and counts as 2026.
Validity validity_for(std::chrono::hours span, WallTime now);
/// The dates of an authority of our own: to the end of 2099, or for 20 years if that is longer. A first start under a wrong clock
/// harms nothing.
Validity authority_validity(WallTime now);
/// The certificate is not valid at `now`, or for less than `left` after it.
bool must_be_renewed(const CertificateFacts& facts, std::chrono::hours left, WallTime now);

/// As the functions of net/certificates.h, with these dates.
Result<KeyPair> make_ca(const std::string& common_name, const Validity& validity);
Result<KeyPair> make_certificate(const KeyPair& ca, const CertificateRequest& request, const Validity& validity);
/// The same CA (key, names) under other dates: what it has signed stays signed. Its SHA-256 is another one. kInvalid: as
/// make_certificate().
Result<KeyPair> renew_ca(const KeyPair& ca, const Validity& validity);

}  // namespace varda::net
