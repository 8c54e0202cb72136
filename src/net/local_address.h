// Finds this machine's address on the route to another machine.
#pragma once

#include <string>

#include "base/result.h"

namespace varda::net {

/// The source address that the kernel would use for connections to that host. Sends nothing, but
/// may resolve the name. kUnavailable: the name is unknown, or there is no route.
Result<std::string> local_address_to(const std::string& host, int port);

}  // namespace varda::net
