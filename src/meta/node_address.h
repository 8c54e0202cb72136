// Checks addresses that nodes report for themselves and their pods. Clients, the control plane and
// other nodes connect to them. So an address that leads to the client's own machine or nowhere is
// invalid.
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
/// Absent: `text` is not an IP address. An IPv4 address inside IPv6 counts as that IPv4 address.
std::optional<AddressScope> address_scope(std::string_view text);
/// True in 127.0.0.0/8 beyond 127.0.0.0/16. Nodes and pods without a network address draw addresses
/// there; services never use it.
bool is_drawn_loopback(std::string_view text);

/// The origin of a node's report.
enum class Reporter {
  kThisMachine,     // loopback addresses mean this machine, as for the node
  kAnotherMachine,  // loopback is invalid, except pod addresses drawn by the node
};

struct AddressProblem {
  std::string field, value, message;  // "status.podIP", "169.254.169.254", "may not be in ..."
};
/// Problems with the addresses in the status of a Pod, Node or EdgeNode. Absent, empty and null
/// addresses are fine. Pure.
std::vector<AddressProblem> address_problems(std::string_view kind, const codec::Json& status,
                                             Reporter reporter);
/// Problems in `status` that `old` does not have, for a server on the machine of its nodes. Values
/// from before an upgrade block no other change.
std::vector<AddressProblem> added_address_problems(std::string_view kind, const codec::Json& old,
                                                   const codec::Json& status);

}  // namespace varda::meta
