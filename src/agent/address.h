// The node's own loopback address: drawn once, kept, so that two nodes on one machine never share ports.
#pragma once

#include <string>
#include <string_view>

#include "agent/journal.h"
#include "base/rng.h"
#include "os/file_system.h"

namespace varda::agent {

/// A socket of this machine is bound to that IPv4 address. `table` is the text of /proc/net/tcp. Pure.
bool address_in_use(std::string_view table, std::string_view address);

/// `wanted` if given; else the kept one; else one drawn from 127.0.0.0/8 that no socket is bound to. Kept in the journal.
Result<std::string> node_address(const std::string& wanted, Journal& journal, Rng& rng, os::FileSystem& fs);

}  // namespace varda::agent
