// The body of an answer as it was before the server packed it for the way.
#pragma once

#include <memory>

#include "net/http.h"

namespace varda::kube::internal {

/// The answer's body, unpacked piece by piece if Content-Encoding says that it is packed; read() gives at most 64 KiB at a time
/// then, so that a small body which unpacks to gigabytes costs nothing before the reader has had enough. kCorrupt: an encoding
/// nobody asked for. Errors of read(): those of the body; kCorrupt: damaged; kUnavailable: cut off.
Result<std::unique_ptr<net::BodyReader>> unpacked(net::ClientResponse response);

}  // namespace varda::kube::internal
