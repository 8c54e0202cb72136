// The uncompressed body of an answer.
#pragma once

#include <memory>

#include "net/http.h"

namespace varda::kube::internal {

/// Returns the answer's body, decompressed while it is read if Content-Encoding is set. Then each
/// read() returns at most 64 KiB, so that a small body which decompresses to gigabytes costs
/// nothing until the reader stops. kCorrupt: an encoding that the client did not request. Errors of
/// read(): those of the body; kCorrupt: damaged; kUnavailable: cut off.
Result<std::unique_ptr<net::BodyReader>> unpacked(net::ClientResponse response);

}  // namespace varda::kube::internal
