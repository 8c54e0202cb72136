// Issuer: keeps the Secrets with certificates of closed servers, and the authority that signs them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/context.h"
#include "base/result.h"
#include "hosting/certificate.h"
#include "hosting/placement.h"
#include "kube/client.h"

namespace varda::hosting {

/// Thread-safe.
class CertificateIssuer {
 public:
  struct Options {
    std::string ns = "varda-system";  // of the authority's Secret; made if it is missing
    const Clock* clock = nullptr;     // null: the machine's
  };
  struct Outcome {
    /// CertificateForbidden: the operator may not keep the Secret. CertificateNameInUse: the Secret
    /// belongs to another owner and is not touched.
    std::optional<Problem> problem;
    Duration recheck_in;
  };

  /// The Secret varda-serving-ca. `client` outlives it.
  static std::unique_ptr<CertificateIssuer> create(const kube::Client& client, Options options);
  virtual ~CertificateIssuer() = default;

  /// Creates or updates the Secret unless it is good. A Secret that was good is not read again for
  /// a minute. Errors are worth a retry.
  virtual Result<Outcome> ensure(const Context& ctx, const WantedCertificate& wanted) = 0;
  /// The owner is gone, or wants no certificate any more.
  virtual void forget(const meta::ObjectKey& secret) = 0;
};

}  // namespace varda::hosting
