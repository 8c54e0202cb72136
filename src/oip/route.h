// Maps method and path to a request of the Open Inference Protocol.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::oip {

enum class Call {
  kServerLive,       // GET  /v2/health/live
  kServerReady,      // GET  /v2/health/ready
  kServerMetadata,   // GET  /v2
  kModelMetadata,    // GET  /v2/models/M[/versions/V]
  kModelReady,       // GET  /v2/models/M[/versions/V]/ready
  kModelInfer,       // POST /v2/models/M[/versions/V]/infer
  kRepositoryIndex,  // POST /v2/repository/index
  kModelJoint,       // GET  /v2/models/M/joint: our extension, state of the tiers
  kModelTrial,       // GET  /v2/models/M/trial: our extension, the version on trial
};

struct Route {
  Call call = Call::kServerLive;
  std::string model;
  std::string version;  // "" if the path has none
};

struct WrongMethod {
  std::string allowed;  // "GET"
};

/// Result of parse_route(): a route, a known path with a wrong method, or neither.
struct RouteResult {
  std::optional<Route> route;
  std::optional<WrongMethod> wrong_method;
};

/// `path` is still percent-encoded and has no query. A trailing '/' is ignored. HEAD counts as GET.
RouteResult parse_route(std::string_view method, std::string_view path);

/// The HTTP status for an error code.
int http_status(Code code);
/// {"error": "message"}
std::string error_body(std::string_view message);

}  // namespace varda::oip
