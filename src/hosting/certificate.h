// The certificate that a closed server gets from Varda: the wanted Secret, and whether the present
// Secret is good. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"
#include "meta/object.h"
#include "net/certificates.h"
#include "runtime/object.h"

namespace varda::hosting {

inline constexpr std::chrono::hours kServerCertificateValid{24 * 90};
inline constexpr std::chrono::hours kServerCertificateLeft{24 * 30};  // then it is renewed

struct WantedCertificate {
  meta::ObjectKey secret;
  runtime::ObjectRef owner;        // the model or service
  std::vector<std::string> hosts;  // DNS names and addresses that clients and other tiers use
};
/// `hosts` sorted, each once.
WantedCertificate wanted_certificate(const runtime::ObjectRef& owner, const std::string& secret,
                                     std::vector<std::string> hosts);

struct CertificateCheck {
  enum class Verdict {
    kGood,
    kIssue,     // the Secret is missing, differs from `wanted`, or is due for renewal
    kForeign,   // a Secret of that name exists, and the owner does not control it
    kLeftOver,  // a Secret of a deleted object with the same name; it is being deleted
  };
  Verdict verdict = Verdict::kIssue;
  WallTime renew_at{};  // of kGood
};
/// `ca_pem` is the current certificate of the authority.
CertificateCheck check_certificate(const WantedCertificate& wanted,
                                   const std::optional<codec::Json>& secret,
                                   const std::string& ca_pem, WallTime now);

/// `before`, or a new Secret of type kubernetes.io/tls, with a fresh key and certificate. The
/// certificate lasts kServerCertificateValid, and clocks that are behind accept it too. It is good
/// for both ends of a connection, because tiers show it to each other.
Result<codec::Json> make_certificate_secret(const WantedCertificate& wanted,
                                            const std::optional<codec::Json>& before,
                                            const net::KeyPair& ca, WallTime now);

}  // namespace varda::hosting
