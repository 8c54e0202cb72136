// The address of a node: one that was given, or a loopback address, drawn once and kept so that two nodes on one machine never
// share ports.
#pragma once

#include <string>
#include <string_view>

#include "agent/journal.h"
#include "base/rng.h"
#include "os/file_system.h"

namespace varda::agent {

/// A socket of this machine is bound to that IPv4 address. `table` is the text of /proc/net/tcp. Pure.
bool address_in_use(std::string_view table, std::string_view address);

/// Where the pods of a node listen: on this machine, or as a kubelet says.
enum class PodsListen { kHere, kElsewhere };
/// kInvalid: no client can use the address as a destination (0.0.0.0), or, for pods that listen here, `address` is no IPv4
/// address of this machine. The message says which addresses the machine has.
Status check_node_address(const std::string& address, PodsListen pods);

/// `wanted` if given, which is not kept; else the kept one; else one drawn from 127.0.0.0/8 that no socket is bound to, and kept
/// in the journal.
Result<std::string> node_address(const std::string& wanted, Journal& journal, Rng& rng, os::FileSystem& fs);

}  // namespace varda::agent
