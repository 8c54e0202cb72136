// The edge's certificate authority: it says who is a node, and which gateway is ours.
//
// On a cluster it is the Secret varda-system/varda-gateway-ca that the first gateway makes; `varda up` gives its own pki/ca. Either
// way its certificate, which is no secret, stands in the ConfigMap varda-system/varda-gateway, where `varda join-token` reads it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/context.h"
#include "base/result.h"
#include "gateway/layer.h"
#include "kube/client.h"
#include "net/tls.h"

namespace varda::gateway {

/// The name that every gateway's certificate has, besides its hosts: what nodes look for, whatever address they reach it at.
inline constexpr std::string_view kGatewayName = "varda-gateway";
inline constexpr std::chrono::hours kNodeCertificateValid{24 * 90};
/// So long after its end a certificate is still good for a renewal.
inline constexpr std::chrono::hours kRenewalGrace{24 * 30};

/// Constant; thread-safe.
class Authority {
 public:
  /// kInvalid: no certificate, or a key that does not belong to it.
  static Result<Authority> of(net::KeyPair ca);
  /// The cluster's; made if there is none, and renewed with the same key if its dates are not good for the next years. Of two
  /// gateways that begin at once, the second takes what the first made. kConflict: it is gone, but published as of some gateway; as
  /// publish().
  static Result<Authority> open(const Context& ctx, const kube::Client& client, WallTime now);

  enum class Other { kStays, kIsReplaced };
  /// Puts the CA's certificate where published_ca() finds it. Writes only what differs. Join tokens name the CA that is published,
  /// so one that would replace another gateway's lets in nobody there. kConflict: another stands there that has not ended, and
  /// stays.
  Status publish(const Context& ctx, const kube::Client& client, WallTime now, Other other = Other::kStays) const;

  const std::string& ca_pem() const { return ca_.certificate_pem; }
  const std::string& ca_sha256() const { return sha256_; }

  /// A fresh certificate for a gateway, with its chain, valid under any clock until the CA ends: its key is in this process alone
  /// and ends with it. Clients are asked for certificates of this CA; expired ones come through, marked.
  Result<net::TlsServer> server(const std::vector<std::string>& hosts) const;
  /// A certificate of that node for the key of the request. The subject names the layer as the organizational unit. The rest of
  /// the request is ignored. kInvalid: the request, see net::sign_csr().
  Result<std::string> issue(const std::string& node, Layer layer, std::string_view csr_pem, WallTime now) const;

 private:
  Authority(net::KeyPair ca, net::CertificateFacts facts);
  std::chrono::hours until_end(WallTime now) const;

  net::KeyPair ca_;
  std::string sha256_, key_sha256_;
  WallTime not_after_;
};

/// PEM. kNotFound: no gateway has begun here yet.
Result<std::string> published_ca(const Context& ctx, const kube::Client& client);

}  // namespace varda::gateway
