// Addresses that nodes report of themselves and of their pods. Clients, the control plane and other nodes connect to them, so an
// address that leads the reader to its own machine, or nowhere, is no report.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/json.h"

namespace varda::meta {

enum class AddressScope {
  kOrdinary,
  kLoopback,
  kNowhere,  // unspecified, link-local, multicast, broadcast
};
/// Nothing: `text` is no IP address. An IPv4 address inside IPv6 counts as the IPv4 address.
std::optional<AddressScope> address_scope(std::string_view text);
/// In 127.0.0.0/8 beyond 127.0.0.0/16: nodes and pods without an address of the network draw theirs there, and services do not lie
/// there.
bool is_drawn_loopback(std::string_view text);

/// Where the node's report came from.
enum class Reporter {
  kThisMachine,     // loopback addresses mean what the node means
  kAnotherMachine,  // no loopback address, but drawn ones of pods: the node's own agent asks the pods there
};

struct AddressProblem {
  std::string field, value, message;  // "status.podIP", "169.254.169.254", "may not be in ..."
};
/// Problems with the addresses in the status of a Pod, Node or EdgeNode. Absent, empty and null addresses are fine. Pure.
std::vector<AddressProblem> address_problems(std::string_view kind, const codec::Json& status, Reporter reporter);
/// Those of `status` that `old` has not, for a server of which this machine's nodes are clients too: what stood there before an
/// upgrade blocks no other change.
std::vector<AddressProblem> added_address_problems(std::string_view kind, const codec::Json& old, const codec::Json& status);

}  // namespace varda::meta
