// Conflicts over node ports of our pods. A port on a node belongs to the owner with a running pod
// there, else to the oldest owner. Pure; shared by InferenceModels and jobs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/core/pod.h"
#include "codec/json.h"

namespace varda::hosting {

/// One port on one node, with the owner that needs it.
struct PortClaim {
  std::string node;
  std::int64_t port = 0;
  std::string protocol = "TCP";
  std::string owner;  // "InferenceModel default/digits", for messages; sorts equal ages
  std::string uid;    // of the owner
  std::string since;  // the owner's metadata.creationTimestamp: sorts by time
  bool held = false;  // a pod of the owner has the port there: other owners wait, even older ones
  friend bool operator==(const PortClaim&, const PortClaim&) = default;
};

/// The node ports that a pod with this PodSpec needs: hostPorts, and with hostNetwork all declared
/// ports.
struct HostPort {
  std::int64_t port = 0;
  std::string protocol;
  friend auto operator<=>(const HostPort&, const HostPort&) = default;
};
std::vector<HostPort> host_ports(const codec::Json& pod_spec);
std::vector<HostPort> host_ports(const api::PodSpec& pod_spec);

/// The owner that keeps `claim` from its port, or null. A claim with the port in use wins, then the
/// older one; claims of the same owner are ignored.
const PortClaim* port_holder(const PortClaim& claim, const std::vector<PortClaim>& others);

/// For messages about a result of port_holder(): "is in use by InferenceModel default/digits",
/// "belongs to the older …".
std::string holder_text(const PortClaim& holder);

/// The port of `current`, if it is not 0 and no other claim wins it. Otherwise the first port from
/// `first` to `last` that is unclaimed on the node; 0: none is free.
std::int64_t choose_port(const PortClaim& current, const std::vector<PortClaim>& others,
                         std::int64_t first, std::int64_t last);

}  // namespace varda::hosting
