#include "agent/workers/answers.h"

#include <algorithm>
#include <utility>

#include "meta/status.h"

namespace varda::agent::workers {

using codec::Json;
using net::Request;
using net::Response;

Response json_response(int status, const Json& body) {
  Response out;
  out.status = status;
  out.headers.add("Content-Type", "application/json");
  out.headers.add("Cache-Control", "no-store");
  out.body = codec::write_json(body) + "\n";
  return out;
}

Response problem(int code, const char* reason, std::string message) {
  meta::ApiStatus status;
  status.code = code;
  status.reason = reason;
  status.message = std::move(message);
  status.details = code == 429 || code == 503;
  if (status.details) status.retry_after_seconds = 1;
  Response out = json_response(code, status.to_json());
  if (status.details) out.headers.add("Retry-After", "1");
  if (code == 401) out.headers.add("WWW-Authenticate", "Bearer");
  return out;
}

Response problem(const Error& error) {
  switch (error.code()) {
    case Code::kInvalid:
      return problem(400, "BadRequest", error.message());
    case Code::kUnauthenticated:
      return problem(401, "Unauthorized", error.message());
    case Code::kForbidden:
      return problem(403, "Forbidden", error.message());
    case Code::kExhausted:
      return problem(413, "RequestEntityTooLarge", error.message());
    case Code::kUnavailable:
      return problem(503, "ServiceUnavailable", error.message());
    default:
      return problem(500, "InternalError", error.message());
  }
}

Response acknowledgement(std::string item, bool durable) {
  return json_response(durable ? 200 : 202,
                       Json::object({{"item", std::move(item)}, {"durable", durable}}));
}

std::optional<std::string_view> bearer(const Request& request) {
  const auto header = request.headers.find("Authorization");
  constexpr std::string_view kScheme = "bearer ";
  if (!header || header->size() <= kScheme.size()) return std::nullopt;
  const bool matches =
      std::equal(kScheme.begin(), kScheme.end(), header->begin(),
                 [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); });
  if (!matches) return std::nullopt;
  return header->substr(kScheme.size());
}

}  // namespace varda::agent::workers
