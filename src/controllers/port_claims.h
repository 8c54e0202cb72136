// Ports of nodes that pods of ours want: of one port on one node the older one keeps it. Pure; InferenceModels and jobs alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codec/json.h"

namespace varda::controllers {

/// One port on one node, and who wants it since when.
struct PortClaim {
  std::string node;
  std::int64_t port = 0;
  std::string protocol = "TCP";
  std::string owner;  // "InferenceModel default/digits", for messages; of two owners of one age the first by name keeps the port
  std::string uid;    // of the owner
  std::string since;  // its metadata.creationTimestamp: sorts by time
  friend bool operator==(const PortClaim&, const PortClaim&) = default;
};

/// The ports of its node that a pod of this PodSpec wants: hostPorts, and with hostNetwork all that are declared.
struct HostPort {
  std::int64_t port = 0;
  std::string protocol;
  friend auto operator<=>(const HostPort&, const HostPort&) = default;
};
std::vector<HostPort> host_ports(const codec::Json& pod_spec);

/// Who has the port that `claim` wants, or null: `claim` may have it. The oldest of `others`, if it is older than `claim`; its own
/// owner's claims are passed over.
const PortClaim* port_holder(const PortClaim& claim, const std::vector<PortClaim>& others);

/// `current` where it is not 0 and nobody else wants it, else the first free port of `node` from `first` to `last`; 0: none is.
std::int64_t choose_port(const std::string& node, std::int64_t current, const std::string& uid,
                         const std::vector<PortClaim>& others, std::int64_t first, std::int64_t last);

}  // namespace varda::controllers
