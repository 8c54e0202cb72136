// Converts Kubernetes' Status objects to our Error and back. Holds the table of codes, reasons and
// HTTP numbers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json.h"

namespace varda::meta {

using codec::Json;

struct StatusCause {
  std::string reason;  // FieldValueRequired, FieldValueInvalid ...
  std::string message;
  std::string field;  // "spec.replicas"
};

/// A failure as the API reports it.
struct ApiStatus {
  int code = 500;
  std::string reason;  // NotFound, AlreadyExists, Conflict, Invalid, BadRequest, Expired ...
  std::string message;
  std::string group, kind, name, uid;  // details
  std::vector<StatusCause> causes;
  std::optional<int> retry_after_seconds;
  bool details = true;     // false: without a `details` member
  std::string list_token;  // metadata.continue: resumes an expired list

  Json to_json() const;
  /// Any `kind: Status` object; unknown members are dropped.
  static ApiStatus from_json(const Json& status);
  /// The Error for a client: 404 kNotFound, 409 AlreadyExists kAlreadyExists, other 409 kConflict,
  /// 410 kGone, 422/400 kInvalid, 429 and 503 kUnavailable, 504 kTimeout ... The message names the
  /// object.
  Error to_error() const;
  /// The reverse, for handlers.
  static ApiStatus from_error(const Error& error);
};

}  // namespace varda::meta
