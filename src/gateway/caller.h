// Who asks the gateway: a node is who its client certificate says it is, and nobody else is anybody.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/edgeai/revocation.h"
#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"
#include "gateway/layer.h"
#include "meta/node_address.h"
#include "net/http.h"

namespace varda::gateway {

inline constexpr std::string_view kNodesOrganization = "system:nodes";
using api::kRevokedAnnotation;
/// The common name of an X.509 certificate has no more (RFC 5280, ub-common-name).
inline constexpr std::size_t kNodeNameBytesMax = 64;

struct Caller {
  std::string node;
  bool expired = false;             // its certificate has ended: it may ask for a new one, and for nothing else
  std::optional<Layer> layer = {};  // the certificate names it; nothing: the certificate is from before layers, so of the edge
};

/// By the certificate that the connection was opened with, as of `now`: connections outlive certificates. kUnauthenticated: none
/// was shown. kForbidden: it is no node's (O = system:nodes alone, OU = a layer or none, CN = a node's name).
Result<Caller> caller_of(const net::Peer& peer, WallTime now);

/// The caller of a request that is no renewal. Further: kUnauthenticated when the certificate has ended. The agent then renews it.
Result<Caller> node_of(const net::Peer& peer, WallTime now);

/// Compares the layer of the certificate with the layer on record (node_key.h). kUnauthenticated: they differ. The agent then
/// renews the certificate if it has no layer, and else enrols with a new join token.
Status check_layer(const Caller& caller, Layer on_record);

/// Whether loopback addresses mean the same to the node and to this machine: the connection itself comes from one.
meta::Reporter reporter_of(const net::Peer& peer);

/// Was the node shut out, with the annotation edgeai.io/revoked: "true" on its EdgeNode? Such a node gets 403 for everything. No
/// EdgeNode (null): no.
bool is_revoked(const codec::Json& edge_node);

}  // namespace varda::gateway
