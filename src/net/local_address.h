// The address of this machine on the way to another one.
#pragma once

#include <string>

#include "base/result.h"

namespace varda::net {

/// The source address that the kernel would take for connections to that host. Sends nothing, but may ask for the host's name.
/// kUnavailable: the name is unknown, or there is no route.
Result<std::string> local_address_to(const std::string& host, int port);

}  // namespace varda::net
