// Keeps web pages of other origins from using a server that asks for no credentials.
#pragma once

#include <string>
#include <vector>

#include "net/http.h"

namespace varda::net {

struct BrowserGuard {
  std::string listen;                     // as in Server::Options
  std::vector<std::string> cors_origins;  // "https://app.example": pages that may use the server; "*": all of them
};

/// Browsers send requests for any page they show. The handler answers 403 instead of passing on
///  - a request with an `Origin` that is neither the server's own nor listed, or with `Sec-Fetch-Site: cross-site`;
///  - on a loopback address, a `Host` other than localhost, an IP address or the host of a listed origin: a page can make its own
///    name mean 127.0.0.1 (DNS rebinding), and is then of the server's origin.
/// Programs that are no browsers send neither header. Pages of listed origins get the headers of CORS.
Handler guard_from_browsers(BrowserGuard guard, Handler handler);

}  // namespace varda::net
