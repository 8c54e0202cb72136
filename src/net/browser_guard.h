// Keeps web pages of other origins from using a server that asks for no credentials.
#pragma once

#include <string>
#include <vector>

#include "net/http.h"

namespace varda::net {

struct BrowserGuard {
  std::string listen;  // as in Server::Options
  std::vector<std::string>
      cors_origins;  // "https://app.example": pages that may use the server; "*": all of them
};

/// Browsers send requests on behalf of any page they show. The handler answers 403 to:
/// - a request with an `Origin` that is neither the server's own nor listed;
/// - a request with `Sec-Fetch-Site: cross-site`;
/// - on a loopback address, a `Host` that is not localhost, an IP address or the host of a
///   listed origin. A page can make its own name resolve to 127.0.0.1 (DNS rebinding), and then
///   shares the server's origin.
/// Programs that are not browsers send neither header. Listed origins get CORS headers.
Handler guard_from_browsers(BrowserGuard guard, Handler handler);

}  // namespace varda::net
