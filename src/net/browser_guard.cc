#include "net/browser_guard.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/text.h"
#include "net/internal/socket.h"
#include "net/ip.h"
#include "net/url.h"

namespace varda::net {
namespace {

bool listens_on_loopback(const std::string& listen) {
  const auto address = internal::Address::parse(listen);
  if (!address.ok() || address->is_unix()) return false;
  const std::string text = address->str();
  const Ip ip = without_ipv6_wrapping(parse_ip(text.substr(0, text.rfind(':'))));
  return parse_ip_block("127.0.0.0/8")->contains(ip) || parse_ip_block("::1")->contains(ip);
}

/// "localhost:8080" -> "localhost"; "[::1]:8080" -> "[::1]"
std::string_view without_port(std::string_view host) {
  const auto colon = host.rfind(':');
  const bool port = colon != std::string_view::npos &&
                    (host.find(']') == std::string_view::npos || host.find(']') < colon);
  return port ? host.substr(0, colon) : host;
}

Response refusal(const char* why) {
  Response response;
  response.status = 403;
  response.headers.add("Content-Type", "application/json");
  response.body = std::string("{\"error\":\"") + why + "\"}";
  return response;
}

class Guard {
 public:
  explicit Guard(BrowserGuard guard) : loopback_(listens_on_loopback(guard.listen)) {
    for (const std::string& origin : guard.cors_origins) {
      if (origin == "*") any_ = true;
      origins_.push_back(lower(origin));
    }
  }

  /// Null: the request may pass.
  const char* why_not(const Request& request) const {
    const std::string host = lower(request.headers.find("Host").value_or(""));
    if (loopback_ && !host.empty() && !names_loopback(host))
      return "this server listens on a loopback address: use localhost or an IP address in the URL";
    const auto origin = request.headers.find("Origin");
    if (origin) {
      if (is_listed(*origin) || is_own(lower(*origin), host)) return nullptr;
      return "pages of another origin may not use this server; --cors-origin allows one";
    }
    if (!any_ && lower(request.headers.find("Sec-Fetch-Site").value_or("")) == "cross-site")
      return "pages of another site may not use this server; --cors-origin allows one";
    return nullptr;
  }
  bool is_listed(std::string_view origin) const {
    return any_ || std::find(origins_.begin(), origins_.end(), lower(origin)) != origins_.end();
  }

 private:
  bool names_loopback(const std::string& host) const {
    const std::string_view name = without_port(host);
    if (any_ || name == "localhost" || parse_ip(name).bits != 0) return true;
    return std::any_of(origins_.begin(), origins_.end(), [&](const std::string& origin) {
      const auto url = Url::parse(origin);
      return url.ok() && url->host == name;
    });
  }
  /// https also counts, because a TLS terminator may stand in front of the server.
  static bool is_own(const std::string& origin, const std::string& host) {
    return !host.empty() && (origin == "http://" + host || origin == "https://" + host);
  }

  const bool loopback_;
  bool any_ = false;
  std::vector<std::string> origins_;
};

/// Adds the headers that let the page read the answer
/// (https://fetch.spec.whatwg.org/#http-cors-protocol).
void allow(Response& response, const std::string& origin) {
  response.headers.set("Access-Control-Allow-Origin", origin);
  response.headers.add("Vary", "Origin");
  response.headers.set("Access-Control-Expose-Headers", "Inference-Header-Content-Length");
}

Response preflight(const Request& request) {
  Response response;
  response.status = 204;
  response.headers.set("Access-Control-Allow-Methods", "GET, HEAD, POST");
  response.headers.set(
      "Access-Control-Allow-Headers",
      std::string(request.headers.find("Access-Control-Request-Headers").value_or("Content-Type")));
  response.headers.set("Access-Control-Max-Age", "600");
  return response;
}

}  // namespace

Handler guard_from_browsers(BrowserGuard options, Handler handler) {
  return [guard = std::make_shared<const Guard>(std::move(options)), handler = std::move(handler)](
             Request request, Responder respond) {
    if (const char* why = guard->why_not(request)) return respond(refusal(why));
    const auto header = request.headers.find("Origin");
    if (!header || !guard->is_listed(*header))
      return handler(std::move(request), std::move(respond));
    const std::string origin(*header);
    if (request.method == "OPTIONS" && request.headers.find("Access-Control-Request-Method")) {
      Response response = preflight(request);
      allow(response, origin);
      return respond(std::move(response));
    }
    const auto inner = std::make_shared<Responder>(std::move(respond));
    handler(std::move(request), Responder(
                                    [inner, origin](Response response) {
                                      allow(response, origin);
                                      (*inner)(std::move(response));
                                    },
                                    [inner](Responder::OnDisconnect callback) {
                                      inner->on_disconnect(std::move(callback));
                                    }));
  };
}

}  // namespace varda::net
