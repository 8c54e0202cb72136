#include "apiserver/internal/audit_event.h"

#include "base/text.h"
#include "codec/yaml.h"
#include "meta/object.h"

namespace varda::apiserver {

namespace {

constexpr std::size_t kBodyBytesMax = 256 << 10;

// Bodies with secrets or tokens never reach the log. Decided by path, which is known even for
// refused requests.
bool confidential(const RequestInfo& info) {
  return info.resource == "secrets" || info.resource == "tokenreviews" ||
         (!info.subresource.empty() && info.subresource[0] == "token");
}

// True if the body was authorized and decoded. Other bodies are not logged: the content is unknown,
// and unauthenticated clients must not fill the log.
bool was_read(const Call& call, const net::Response& response) {
  return call.kind != nullptr && response.status != 400;
}

std::string host_of(std::string_view address) {
  if (address.empty() || address == "loopback") return "127.0.0.1";
  const std::size_t colon = address.rfind(':');
  std::string_view host = colon == std::string_view::npos ? address : address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return std::string(host);
}

Json user_of(const Identity& caller) {
  if (caller.name.empty()) return Json::object();
  Json groups = Json::array();
  for (const std::string& group : caller.groups) groups.push_back(group);
  return Json::object({{"username", caller.name}, {"groups", std::move(groups)}});
}

Json reference(const Attributes& what) {
  Json out = Json::object();
  const auto add = [&out](const char* name, const std::string& value) {
    if (!value.empty()) out.set(name, value);
  };
  add("resource", what.resource);
  add("namespace", what.ns);
  add("name", what.name);
  add("apiGroup", what.group);
  add("apiVersion", what.version);
  add("subresource", what.subresource);
  return out;
}

Json outcome(const net::Response& response, bool secret) {
  Json out = Json::object({{"metadata", Json::object()}});
  if (response.status >= 400 && !response.stream) {
    if (const auto parsed = codec::parse_json(response.body);
        parsed.ok() && (*parsed)["kind"].as_string() == "Status") {
      out.set("status", "Failure");
      // The message of a refused object may quote secret values.
      if (!secret) out.set("message", (*parsed)["message"]);
      out.set("reason", (*parsed)["reason"]);
    }
  }
  out.set("code", response.status);
  return out;
}

// The request body; nullopt if it is too large or not JSON or YAML.
std::optional<Json> body_of(const net::Request& request) {
  if (request.body.empty() || request.body.size() > kBodyBytesMax) return std::nullopt;
  const std::string_view type = request.headers.find("Content-Type").value_or("application/json");
  auto parsed = type.find("yaml") != std::string_view::npos ? codec::parse_yaml(request.body)
                : type.find("json") != std::string_view::npos
                    ? codec::parse_json(request.body)
                    : Result<Json>(Error(Code::kUnsupported, "not a text"));
  if (!parsed.ok()) return std::nullopt;
  return std::move(parsed).value();
}

}  // namespace

std::optional<Json> audit_event(const Call& call, const net::Response& response, AuditLevel level,
                                std::string id, const AuditTimes& times) {
  const Attributes& what = call.attributes;
  const std::string& path = call.info.path;
  if (level == AuditLevel::kNone || path == "/healthz" || path == "/readyz" || path == "/livez" ||
      path == "/version")
    return std::nullopt;
  const bool secret = confidential(call.info);
  std::string verb = what.verb;
  if (verb.empty()) verb = lower(call.http.method);  // refused before the verb was determined

  const bool with_body = level == AuditLevel::kRequest && !secret && was_read(call, response) &&
                         call.http.method != "GET" && call.http.method != "HEAD";
  Json event = Json::object({{"kind", "Event"},
                             {"apiVersion", "audit.k8s.io/v1"},
                             {"level", with_body ? "Request" : "Metadata"},
                             {"auditID", std::move(id)},
                             {"stage", response.stream ? "ResponseStarted" : "ResponseComplete"},
                             {"requestURI", call.http.target},
                             {"verb", verb},
                             {"user", user_of(call.authenticated)},
                             {"sourceIPs", Json::array({host_of(call.http.peer.address)})}});
  if (call.caller != call.authenticated) event.set("impersonatedUser", user_of(call.caller));
  if (const auto agent = call.http.headers.find("User-Agent"))
    event.set("userAgent", std::string(*agent));
  if (what.is_resource) event.set("objectRef", reference(what));
  event.set("responseStatus", outcome(response, secret));
  if (with_body) {
    if (auto body = body_of(call.http)) {
      event.set("requestObject", std::move(*body));
    } else if (!call.http.body.empty()) {
      event.set("annotations", Json::object({{"edgeai.io/request-object",
                                              "omitted: " + std::to_string(call.http.body.size()) +
                                                  " bytes, too large or not UTF-8"}}));
    }
  }
  event.set("requestReceivedTimestamp", meta::format_micro_time(times.received));
  event.set("stageTimestamp", meta::format_micro_time(times.answered));
  return event;
}

std::optional<Json> audit_event(const net::Request& request, const Identity& caller,
                                const net::Response& response, AuditLevel level, std::string id) {
  const WallTime now = system_clock().wall();
  const Call call{.http = request,
                  .caller = caller,
                  .authenticated = caller,
                  .info = parse_path(request.path())};
  return audit_event(call, response, level, std::move(id), {now, now});
}

}  // namespace varda::apiserver
