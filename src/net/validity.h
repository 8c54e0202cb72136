// Validity periods of our own certificates, chosen so that neither age nor a wrong clock locks
// clients out.
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
/// The earliest time a clock can show. Our servers' certificates begin here. A certificate that
/// begins at its issue time is refused by machines with a slow clock. After a first start under
/// a clock that was ahead, that could last long.
inline constexpr WallTime kClocksBegin{};

/// From kClocksBegin to `span` after `now`. A clock before 2026 is wrong and counts as 2026.
Validity validity_for(std::chrono::hours span, WallTime now);
/// The dates of our own authority: to the end of 2099, or for 20 years if that is longer. So a
/// first start under a wrong clock does no harm.
Validity authority_validity(WallTime now);
/// The certificate is not valid at `now`, or for less than `left` after it.
bool must_be_renewed(const CertificateFacts& facts, std::chrono::hours left, WallTime now);

/// Like the functions of net/certificates.h, with these dates.
Result<KeyPair> make_ca(const std::string& common_name, const Validity& validity);
Result<KeyPair> make_certificate(const KeyPair& ca, const CertificateRequest& request,
                                 const Validity& validity);
/// Reissues the CA (same key, same names) with other dates, so that existing signatures stay valid.
/// Its SHA-256 changes. kInvalid: as make_certificate().
Result<KeyPair> renew_ca(const KeyPair& ca, const Validity& validity);

}  // namespace varda::net
