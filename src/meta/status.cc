#include "meta/status.h"

#include <array>

namespace varda::meta {
namespace {

struct Row {
  Code code;
  int http;
  std::string_view reason;
};

// The only table. from_error() uses the first row of a code. to_error() searches by reason first,
// then by number.
constexpr std::array kTable{
    Row{Code::kInvalid, 400, "BadRequest"},
    Row{Code::kInvalid, 422, "Invalid"},
    Row{Code::kNotFound, 404, "NotFound"},
    Row{Code::kConflict, 409, "Conflict"},
    Row{Code::kAlreadyExists, 409, "AlreadyExists"},
    Row{Code::kGone, 410, "Expired"},
    Row{Code::kGone, 410, "Gone"},
    Row{Code::kUnauthenticated, 401, "Unauthorized"},
    Row{Code::kForbidden, 403, "Forbidden"},
    Row{Code::kUnavailable, 503, "ServiceUnavailable"},
    Row{Code::kUnavailable, 429, "TooManyRequests"},
    Row{Code::kExhausted, 413, "RequestEntityTooLarge"},
    Row{Code::kTimeout, 504, "Timeout"},
    Row{Code::kTimeout, 500, "ServerTimeout"},
    Row{Code::kUnsupported, 405, "MethodNotAllowed"},
    Row{Code::kUnsupported, 406, "NotAcceptable"},
    Row{Code::kUnsupported, 415, "UnsupportedMediaType"},
    Row{Code::kInternal, 500, "InternalError"},
};

Code code_of(int http, std::string_view reason) {
  if (!reason.empty()) {
    for (const Row& row : kTable) {
      if (row.reason == reason) return row.code;
    }
  }
  for (const Row& row : kTable) {
    if (row.http == http && row.reason != "ServerTimeout") return row.code;
  }
  if (http == 408) return Code::kTimeout;
  if (http == 502) return Code::kUnavailable;
  return http >= 400 && http < 500 ? Code::kInvalid : Code::kInternal;
}

void put_text(Json& object, const char* name, const std::string& value) {
  if (!value.empty()) object.set(name, value);
}

}  // namespace

Json ApiStatus::to_json() const {
  Json metadata = Json::object();
  put_text(metadata, "continue", list_token);
  Json out =
      Json::object({{"kind", "Status"}, {"apiVersion", "v1"}, {"metadata", std::move(metadata)}});
  out.set("status", code < 400 ? "Success" : "Failure");
  put_text(out, "message", message);
  put_text(out, "reason", reason);
  if (details) {
    Json more = Json::object();
    put_text(more, "name", name);
    put_text(more, "group", group);
    put_text(more, "kind", kind);
    put_text(more, "uid", uid);
    if (!causes.empty()) {
      Json list = Json::array();
      for (const StatusCause& cause : causes) {
        Json item = Json::object();
        put_text(item, "reason", cause.reason);
        put_text(item, "message", cause.message);
        put_text(item, "field", cause.field);
        list.push_back(std::move(item));
      }
      more.set("causes", std::move(list));
    }
    if (retry_after_seconds) more.set("retryAfterSeconds", *retry_after_seconds);
    out.set("details", std::move(more));
  }
  out.set("code", code);
  return out;
}

ApiStatus ApiStatus::from_json(const Json& status) {
  ApiStatus out;
  out.code = static_cast<int>(
      status["code"].as_integer(status["status"].as_string() == "Success" ? 200 : 500));
  out.reason = status["reason"].as_string();
  out.message = status["message"].as_string();
  out.list_token = status.at("metadata/continue").as_string();
  const Json& more = status["details"];
  out.details = more.is_object();
  out.group = more["group"].as_string();
  out.kind = more["kind"].as_string();
  out.name = more["name"].as_string();
  out.uid = more["uid"].as_string();
  for (const Json& cause : more["causes"].as_array()) {
    out.causes.push_back(
        {cause["reason"].as_string(), cause["message"].as_string(), cause["field"].as_string()});
  }
  if (more["retryAfterSeconds"].is_integer())
    out.retry_after_seconds = static_cast<int>(more["retryAfterSeconds"].as_integer());
  return out;
}

Error ApiStatus::to_error() const {
  std::string text = message;
  if (text.empty()) text = reason.empty() ? "HTTP status " + std::to_string(code) : reason;
  if (!name.empty() && text.find(name) == std::string::npos) {
    std::string what = kind;
    if (!group.empty() && !kind.empty()) what += "." + group;
    text = (what.empty() ? "" : what + " ") + "\"" + name + "\": " + text;
  }
  return {code_of(code, reason), std::move(text)};
}

ApiStatus ApiStatus::from_error(const Error& error) {
  ApiStatus out;
  out.message = error.message();
  out.details = false;
  Code code = error.code();
  switch (code) {
    // Codes that clients cannot or need not distinguish.
    case Code::kCorrupt:
      code = Code::kInternal;
      break;
    case Code::kCancelled:
      code = Code::kUnavailable;
      break;
    case Code::kExhausted:
      out.code = 429;
      out.reason = "TooManyRequests";
      out.retry_after_seconds = 1;
      out.details = true;
      return out;
    default:
      break;
  }
  for (const Row& row : kTable) {
    if (row.code != code) continue;
    out.code = row.http;
    out.reason = std::string(row.reason);
    break;
  }
  return out;
}

}  // namespace varda::meta
