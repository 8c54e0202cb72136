// The only table between gRPC status numbers and Code.
// github.com/grpc/grpc/blob/master/doc/statuscodes.md
#pragma once

#include <string_view>

#include "base/result.h"

namespace varda::net {

/// The status that a client receives for an error with this code.
int grpc_status_of(Code code);
/// The code for a status other than OK. Unknown numbers count as UNKNOWN.
Code code_of_grpc_status(int status);
/// "NOT_FOUND"; "UNKNOWN" for unknown numbers.
std::string_view grpc_status_name(int status);

}  // namespace varda::net
