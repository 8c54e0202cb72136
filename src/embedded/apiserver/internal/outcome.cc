#include "apiserver/internal/outcome.h"

#include <unordered_set>

#include "apiserver/kinds/cause.h"

namespace varda::apiserver {

namespace {

ApiStatus make(int code, std::string reason, std::string message) {
  ApiStatus status;
  status.code = code;
  status.reason = std::move(reason);
  status.message = std::move(message);
  status.details = false;
  return status;
}

ApiStatus about(ApiStatus status, const meta::Resource& resource, std::string_view name) {
  status.group = resource.group;
  status.kind = resource.plural;
  status.name = name;
  status.details = true;
  return status;
}

}  // namespace

std::string in_quotes(std::string_view text) { return go_quote(text); }

ApiStatus bad_request(std::string message) { return make(400, "BadRequest", std::move(message)); }

ApiStatus not_found(const meta::Resource& resource, std::string_view name) {
  return about(
      make(404, "NotFound", resource.group_resource() + " " + in_quotes(name) + " not found"),
      resource, name);
}

ApiStatus already_exists(const meta::Resource& resource, std::string_view name) {
  return about(make(409, "AlreadyExists",
                    resource.group_resource() + " " + in_quotes(name) + " already exists"),
               resource, name);
}

ApiStatus generated_name_taken(const meta::Resource& resource, std::string_view name) {
  ApiStatus status = already_exists(resource, name);
  status.message += ", the server was not able to generate a unique name for the object";
  status.retry_after_seconds = 1;
  return status;
}

ApiStatus conflict(const meta::Resource& resource, std::string_view name, std::string_view why) {
  std::string message = "Operation cannot be fulfilled on " + resource.group_resource() + " " +
                        in_quotes(name) + ": ";
  return about(make(409, "Conflict", message.append(why)), resource, name);
}

ApiStatus modified_conflict(const meta::Resource& resource, std::string_view name) {
  return conflict(resource, name,
                  "the object has been modified; please apply your changes to the latest version "
                  "and try again");
}

ApiStatus invalid(std::string_view group, std::string_view kind, std::string_view name,
                  std::vector<StatusCause> causes) {
  std::string what(kind);
  if (!group.empty()) what.append(".").append(group);
  std::unordered_set<std::string> parts;
  std::string text;
  for (const StatusCause& cause : causes) {
    std::string part = cause.field.empty() ? cause.message : cause.field + ": " + cause.message;
    const auto [fresh, added] = parts.insert(std::move(part));
    if (added) text.append(text.empty() ? "" : ", ").append(*fresh);
  }
  if (parts.size() > 1) text = "[" + text + "]";
  ApiStatus status =
      make(422, "Invalid",
           what + " " + in_quotes(name) + " is invalid" + (text.empty() ? "" : ": " + text));
  status.group = group;
  status.kind = kind;
  status.name = name;
  status.causes = std::move(causes);
  status.details = true;
  return status;
}

ApiStatus forbidden(const meta::Resource& resource, std::string_view name, std::string_view why) {
  std::string message = resource.group_resource();
  if (!name.empty()) message += " " + in_quotes(name);
  message += " is forbidden: ";
  return about(make(403, "Forbidden", message.append(why)), resource, name);
}

ApiStatus method_not_allowed() {
  ApiStatus status = make(405, "MethodNotAllowed",
                          "the server does not allow this method on the requested resource");
  status.details = true;
  return status;
}

ApiStatus verb_not_supported(const meta::Resource& resource, std::string_view verb) {
  return about(make(405, "MethodNotAllowed",
                    std::string(verb) + " is not supported on resources of kind " +
                        in_quotes(resource.group_resource())),
               resource, "");
}

ApiStatus resource_not_found() {
  ApiStatus status = make(404, "NotFound", "the server could not find the requested resource");
  status.details = true;
  return status;
}

ApiStatus internal(std::string message) { return make(500, "", std::move(message)); }

ApiStatus expired(std::string message) { return make(410, "Expired", std::move(message)); }

ApiStatus unsupported_media_type(std::string_view accepted) {
  return make(415, "UnsupportedMediaType",
              "the body of the request was in an unknown format - accepted media types include: " +
                  std::string(accepted));
}

ApiStatus not_acceptable() {
  return make(406, "NotAcceptable",
              "only the following media types are accepted: application/json, application/yaml, "
              "application/vnd.kubernetes.protobuf");
}

ApiStatus too_large(std::size_t limit) {
  return make(413, "RequestEntityTooLarge",
              "Request entity too large: limit is " + std::to_string(limit));
}

ApiStatus too_many_operations(std::size_t limit, std::size_t count) {
  return make(413, "RequestEntityTooLarge",
              "Request entity too large: The allowed maximum operations in a JSON patch is " +
                  std::to_string(limit) + ", got " + std::to_string(count));
}

ApiStatus too_many_requests(std::string message) {
  ApiStatus status = make(429, "TooManyRequests", std::move(message));
  status.retry_after_seconds = 1;
  return status;
}

ApiStatus store_failure(const Error& error) {
  switch (error.code()) {
    case Code::kGone:
      return expired("The provided resource version is too old: " + error.message());
    case Code::kExhausted:
      return make(507, "InsufficientStorage", "the store is full: " + error.message());
    case Code::kUnavailable:
      return make(503, "ServiceUnavailable", error.message());
    default:
      return make(500, "InternalError", "Internal error occurred: " + error.message());
  }
}

}  // namespace varda::apiserver
