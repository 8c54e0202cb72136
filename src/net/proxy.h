// Chooses the HTTP proxy for an origin.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::net {

struct Proxies {
  std::string http;         // proxy for http URLs: "http://proxy:3128"; "": no proxy
  std::string https;        // proxy for https URLs, through CONNECT
  std::string none;         // hosts without proxy, see bypasses_proxy()
  std::string credentials;  // "user:password" for proxies that require it
};

/// Parses "http://HOST:PORT" or "HOST:PORT" into an origin. The default port is 1080, as in curl.
/// kInvalid: another scheme, a path, or a user. Proxy credentials come from a file.
Result<std::string> parse_proxy(std::string_view text);

/// Reads http_proxy, https_proxy and no_proxy as curl does, then the upper-case names. The first
/// two fall back to all_proxy. HTTP_PROXY counts too, because this is not a CGI program. A user in
/// a URL is removed; the rest of the URL goes into `left_out`.
Result<Proxies> proxies_from_environment(const std::function<const char*(const char*)>& getenv,
                                         std::string* left_out = nullptr);

/// Reads `none` like curl's NO_PROXY: names separated by commas or blanks. "*" matches every host.
/// "example.com" and ".example.com" match that host and its subdomains. An address matches itself,
/// "10.0.0.0/8" a block. An entry may end with ":PORT".
bool bypasses_proxy(std::string_view none, std::string_view host, int port);

/// The proxy's origin for a URL; absent: direct. Loopback hosts (localhost, 127.0.0.0/8, ::1) are
/// always direct. curl differs here, but a remote proxy would look for the server on the proxy's
/// machine.
std::optional<std::string> proxy_for(const Proxies& proxies, std::string_view scheme,
                                     std::string_view host, int port);

/// The Proxy-Authorization header line with its line break; "" without credentials.
std::string proxy_authorization(const Proxies& proxies);

}  // namespace varda::net
