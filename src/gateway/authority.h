// Authority: the certificate authority (CA) of the edge, which signs certificates of nodes and
// gateways.
//
// On a cluster the CA is the Secret varda-system/varda-gateway-ca, which the first gateway makes.
// `varda up` passes its own pki/ca. Both publish the certificate, which is no secret, in the
// ConfigMap varda-system/varda-gateway. `varda join-token` reads it there.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/context.h"
#include "base/result.h"
#include "gateway/layer.h"
#include "kube/client.h"
#include "net/proxy_protocol.h"
#include "net/tls.h"

namespace varda::gateway {

/// Every gateway's certificate has this name besides its hosts. Nodes verify this name, under any
/// address.
inline constexpr std::string_view kGatewayName = "varda-gateway";
inline constexpr std::chrono::hours kNodeCertificateValid{24 * 90};
/// An ended certificate can still be renewed for this long.
inline constexpr std::chrono::hours kRenewalGrace{24 * 30};

/// Constant; thread-safe.
class Authority {
 public:
  /// kInvalid: no certificate, or a key that does not belong to it.
  static Result<Authority> of(net::KeyPair ca);
  /// Opens the CA of the cluster. Makes a missing CA. Renews a CA that is not valid for the next
  /// three years; the key stays. If two gateways start at once, the second takes the CA of the
  /// first. kConflict: the Secret is missing but a CA is published, see publish().
  static Result<Authority> open(const Context& ctx, const kube::Client& client, WallTime now);

  enum class Other { kStays, kIsReplaced };
  /// Publishes the CA's certificate for published_ca(), and writes only a difference. Join tokens
  /// name the published CA. So after a replacement new tokens fail at gateways with the former CA.
  /// kConflict: another CA that has not ended is published, and stays.
  Status publish(const Context& ctx, const kube::Client& client, WallTime now,
                 Other other = Other::kStays) const;

  const std::string& ca_pem() const { return ca_.certificate_pem; }
  const std::string& ca_sha256() const { return sha256_; }

  /// Makes a certificate for a gateway, with its chain, valid under any clock until the CA ends.
  /// The key never leaves this process. The server asks clients for certificates of this CA, and
  /// marks expired ones instead of refusing them.
  Result<net::TlsServer> server(const std::vector<std::string>& hosts) const;
  /// Signs the key of the request for `node`. The subject names the layer as the organizational
  /// unit. The rest of the request is ignored. kInvalid: a bad request, see net::sign_csr().
  Result<std::string> issue(const std::string& node, Layer layer, std::string_view csr_pem,
                            WallTime now) const;
  /// Signs the identity in the header for 60 s. Targets verify it with ca_pem().
  Status sign(net::ProxyHeader& header, WallTime now) const;

 private:
  Authority(net::KeyPair ca, net::CertificateFacts facts);
  std::chrono::hours until_end(WallTime now) const;

  net::KeyPair ca_;
  std::string sha256_, key_sha256_;
  WallTime not_after_;
};

/// PEM. kNotFound: no gateway has started on this cluster yet.
Result<std::string> published_ca(const Context& ctx, const kube::Client& client);

}  // namespace varda::gateway
