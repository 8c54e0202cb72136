// Ports of nodes that pods of ours want: of one port on one node the one keeps it that has a pod there, or else the older one.
// Pure; InferenceModels and jobs alike.
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
  bool held = false;  // a pod of it has the port there: who comes later waits, however old it is
  friend bool operator==(const PortClaim&, const PortClaim&) = default;
};

/// The ports of its node that a pod of this PodSpec wants: hostPorts, and with hostNetwork all that are declared.
struct HostPort {
  std::int64_t port = 0;
  std::string protocol;
  friend auto operator<=>(const HostPort&, const HostPort&) = default;
};
std::vector<HostPort> host_ports(const codec::Json& pod_spec);

/// Who has the port that `claim` wants, or null: `claim` may have it. Who holds it goes before who does not, then the older before
/// the younger; its own owner's claims are passed over.
const PortClaim* port_holder(const PortClaim& claim, const std::vector<PortClaim>& others);

/// For messages, of one that port_holder() found: "is in use by InferenceModel default/digits", "belongs to the older …".
std::string has_it(const PortClaim& holder);

/// The port of `current` where that is not 0 and nobody comes before it, else the first from `first` to `last` that nobody wants on
/// its node; 0: none is.
std::int64_t choose_port(const PortClaim& current, const std::vector<PortClaim>& others, std::int64_t first, std::int64_t last);

}  // namespace varda::controllers
