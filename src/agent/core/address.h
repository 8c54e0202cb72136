// The node's address: a configured one, or a loopback address that is drawn once and persisted. Two
// nodes on one machine therefore never share ports.
#pragma once

#include <string>
#include <string_view>

#include "agent/core/state_store.h"
#include "base/rng.h"
#include "os/file_system.h"

namespace varda::agent::core {

/// Whether a socket of this machine is bound to the IPv4 address. `table` is the text of
/// /proc/net/tcp. Pure.
bool address_in_use(std::string_view table, std::string_view address);

/// Listeners of the node's pods: this machine, or addresses that a kubelet reports.
enum class PodsListen { kOnThisNode, kElsewhere };
/// kInvalid: clients cannot connect to the address (0.0.0.0, link-local), or pods listen here and
/// `address` is not an IP address of this machine. IPv6 has no brackets here. The message lists the
/// machine's addresses.
Status check_node_address(const std::string& address, PodsListen pods);

/// Returns `wanted` unless empty, without persisting it. Otherwise returns the persisted address.
/// Without a persisted address, draws one of 127.0.0.0/8 that no socket is bound to, and persists
/// it in the state store.
Result<std::string> node_address(const std::string& wanted, StateStore& state_store, Rng& rng,
                                 os::FileSystem& fs);

}  // namespace varda::agent::core
