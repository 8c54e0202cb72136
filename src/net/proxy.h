// Through which HTTP proxy a client reaches an origin.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::net {

struct Proxies {
  std::string http;         // for http URLs: "http://proxy:3128"; "" none
  std::string https;        // for https URLs, through CONNECT
  std::string none;         // hosts that are reached directly: bypasses_proxy()
  std::string credentials;  // "user:password" for the proxies that ask
};

/// "http://HOST:PORT" or "HOST:PORT" (port 1080 where none is given, as curl has it) as an origin. kInvalid: another scheme, a
/// path, or a user: credentials of a proxy come from a file.
Result<std::string> parse_proxy(std::string_view text);

/// http_proxy, https_proxy and no_proxy, each else in upper case, else all_proxy (for the first two), as curl reads them; but
/// HTTP_PROXY counts too, because this is no CGI program. A user in a URL is left out, and named in `left_out`.
Result<Proxies> proxies_from_environment(const std::function<const char*(const char*)>& getenv, std::string* left_out = nullptr);

/// As curl reads NO_PROXY: names separated by commas or blanks. "*" is every host; "example.com" and ".example.com" that host and
/// those below it; an address means itself, "10.0.0.0/8" a block of them. An entry may end with ":PORT".
bool bypasses_proxy(std::string_view none, std::string_view host, int port);

/// The proxy's origin for a URL; nothing: straight. This machine itself (localhost, 127.0.0.0/8, ::1) is always reached straight,
/// unlike with curl: a proxy elsewhere would look for the server on its own machine.
std::optional<std::string> proxy_for(const Proxies& proxies, std::string_view scheme, std::string_view host, int port);

/// The header line with which a proxy is asked, its line break included; "" without credentials.
std::string proxy_authorization(const Proxies& proxies);

}  // namespace varda::net
