#include "oip/route.h"

#include <vector>

#include "codec/json.h"
#include "net/url.h"

namespace varda::oip {
namespace {

std::vector<std::string_view> split(std::string_view path) {
  std::vector<std::string_view> out;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    out.push_back(path.substr(0, slash));
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  return out;
}

// Parses the path below /v2/models.
std::optional<Route> model_route(const std::vector<std::string_view>& parts) {
  if (parts.empty() || parts[0].empty()) return std::nullopt;
  auto model = net::percent_decode(parts[0]);
  if (!model.ok()) return std::nullopt;
  Route route{Call::kModelMetadata, std::move(model).value(), ""};
  std::size_t at = 1;
  if (parts.size() > 2 && parts[1] == "versions") {
    auto version = net::percent_decode(parts[2]);
    if (!version.ok() || version->empty()) return std::nullopt;
    route.version = std::move(version).value();
    at = 3;
  }
  if (parts.size() == at) return route;
  if (parts.size() != at + 1) return std::nullopt;
  if (parts[at] == "ready") {
    route.call = Call::kModelReady;
  } else if (parts[at] == "infer") {
    route.call = Call::kModelInfer;
  } else if (parts[at] == "joint" && route.version.empty()) {
    route.call = Call::kModelJoint;
  } else if (parts[at] == "trial" && route.version.empty()) {
    route.call = Call::kModelTrial;
  } else {
    return std::nullopt;
  }
  return route;
}

std::optional<Route> find(std::string_view path) {
  if (path.substr(0, 3) != "/v2") return std::nullopt;
  path.remove_prefix(3);
  if (!path.empty() && path.back() == '/') path.remove_suffix(1);
  if (path.empty()) return Route{Call::kServerMetadata, "", ""};
  if (path == "/health/live") return Route{Call::kServerLive, "", ""};
  if (path == "/health/ready") return Route{Call::kServerReady, "", ""};
  if (path == "/repository/index") return Route{Call::kRepositoryIndex, "", ""};
  constexpr std::string_view kModels = "/models/";
  if (path.substr(0, kModels.size()) == kModels)
    return model_route(split(path.substr(kModels.size())));
  return std::nullopt;
}

}  // namespace

RouteResult parse_route(std::string_view method, std::string_view path) {
  std::optional<Route> route = find(path);
  if (!route) return {};
  const bool post = route->call == Call::kModelInfer || route->call == Call::kRepositoryIndex;
  if (post ? method != "POST" : (method != "GET" && method != "HEAD"))
    return {std::nullopt, WrongMethod{post ? "POST" : "GET"}};
  return {std::move(route), std::nullopt};
}

int http_status(Code code) {
  switch (code) {
    case Code::kInvalid:
    case Code::kCorrupt:
      return 400;
    case Code::kUnauthenticated:
      return 401;
    case Code::kForbidden:
      return 403;
    case Code::kNotFound:
      return 404;
    case Code::kAlreadyExists:
    case Code::kConflict:
      return 409;
    case Code::kGone:
      return 410;
    case Code::kExhausted:
      return 429;
    case Code::kUnsupported:
      return 501;
    case Code::kUnavailable:
    case Code::kCancelled:
      return 503;
    case Code::kTimeout:
      return 504;
    case Code::kInternal:
      return 500;
  }
  return 500;
}

std::string error_body(std::string_view message) {
  std::string out = "{\"error\":";
  codec::write_json(codec::Json(message), out);
  return out + "}";
}

}  // namespace varda::oip
