#include "gateway/caller.h"

#include "meta/object.h"

namespace varda::gateway {

Result<Caller> caller_of(const net::Peer& peer, WallTime now) {
  const std::string& name = peer.certificate_common_name;
  if (name.empty() && peer.certificate_organizations.empty()) {
    return Error(
        Code::kUnauthenticated,
        "a client certificate is required; a node gets one by enrolment with a join token");
  }
  // Exactly one organization: a certificate with more was made for another purpose.
  const bool of_nodes = peer.certificate_organizations.size() == 1 &&
                        peer.certificate_organizations[0] == kNodesOrganization;
  if (!of_nodes || name.size() > kNodeNameBytesMax || !meta::check_dns_subdomain(name).empty()) {
    return Error(Code::kForbidden, "the client certificate is not a node's");
  }
  Caller caller{name, peer.certificate_expired || peer.certificate_not_after <= now};
  const std::vector<std::string>& units = peer.certificate_organizational_units;
  if (!units.empty()) caller.layer = parse_layer(units[0]);
  if (units.size() > 1 || (units.size() == 1 && !caller.layer)) {
    return Error(
        Code::kForbidden,
        "the client certificate is not a node's: its organizational unit is not one layer");
  }
  return caller;
}

Result<Caller> node_of(const net::Peer& peer, WallTime now) {
  TRY(Caller caller, caller_of(peer, now));
  if (caller.expired) {
    return Error(Code::kUnauthenticated, "the certificate of node \"" + caller.node +
                                             "\" ended at " +
                                             meta::format_time(peer.certificate_not_after) +
                                             "; the certificate must be renewed");
  }
  return caller;
}

Status check_layer(const Caller& caller, Layer on_record) {
  if (caller.layer.value_or(Layer::kEdge) == on_record) return {};
  const std::string node = "node \"" + caller.node + "\"";
  const std::string recorded(to_string(on_record));
  if (!caller.layer) {
    return Error(Code::kUnauthenticated, "the certificate of " + node +
                                             " names no layer, and the node is of the layer " +
                                             recorded + "; the certificate must be renewed");
  }
  return Error(Code::kUnauthenticated, "the certificate of " + node + " is for the layer " +
                                           std::string(to_string(*caller.layer)) +
                                           ", and the node is of the layer " + recorded +
                                           "; `varda join-token --node " + caller.node +
                                           " --layer LAYER` lets it enrol again");
}

meta::Reporter reporter_of(const net::Peer& peer) {
  std::string_view host = std::string_view(peer.address).substr(0, peer.address.rfind(':'));
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  const bool is_loopback = meta::address_scope(host) == meta::AddressScope::kLoopback;
  return is_loopback ? meta::Reporter::kThisMachine : meta::Reporter::kAnotherMachine;
}

bool is_revoked(const codec::Json& edge_node) {
  const codec::Json& annotations = edge_node.at("metadata/annotations");
  return annotations[kRevokedAnnotation].as_string() == "true";
}

}  // namespace varda::gateway
