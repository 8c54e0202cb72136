// Causes of a 422 answer, with the texts of Kubernetes' field errors, which clients match.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codec/json.h"
#include "meta/status.h"

namespace varda::schema {

using codec::Json;
using meta::StatusCause;
using Causes = std::vector<StatusCause>;

/// "Required value" or "Required value: detail".
StatusCause required(std::string_view field, std::string_view detail = "");
/// "Invalid value: VALUE: detail", the value as go_value() prints it.
StatusCause invalid(std::string_view field, const Json& value, std::string_view detail);
/// The same with the reason FieldValueTypeInvalid.
StatusCause type_invalid(std::string_view field, const Json& value, std::string_view detail);
/// `Unsupported value: "x": supported values: "a", "b"`.
StatusCause not_supported(std::string_view field, const Json& value,
                          const std::vector<std::string>& supported);
StatusCause forbidden_field(std::string_view field, std::string_view detail);
/// "Duplicate value: VALUE".
StatusCause duplicate(std::string_view field, const Json& value);
/// "Too long: may not be more than N bytes".
StatusCause too_long(std::string_view field, std::int64_t max);
/// "Too many: N: must have at most M items".
StatusCause too_many(std::string_view field, std::size_t actual, std::int64_t max);

/// A value as printed in these messages: quoted text, plain numbers, the rest like Go's %#v.
std::string go_value(const Json& value);
/// Text in double quotes, escaped like Go's %q.
std::string go_quote(std::string_view text);

/// A path in an object, formatted only on demand: most walks find no error. Lives on the stack
/// beside its parent.
class FieldPath {
 public:
  FieldPath() = default;
  FieldPath(const FieldPath& parent, std::string_view name) : parent_(&parent), name_(name) {}
  FieldPath(const FieldPath& parent, std::size_t index) : parent_(&parent), index_(index) {}
  /// "spec.list[3].name"
  std::string str() const;

 private:
  const FieldPath* parent_ = nullptr;
  std::string_view name_;
  std::size_t index_ = 0;
};

/// "parent.name", or "name" if `parent` is empty.
std::string child(std::string_view parent, std::string_view name);
/// "parent[name]" and "parent[3]".
std::string keyed(std::string_view parent, std::string_view name);
std::string indexed(std::string_view parent, std::size_t index);

}  // namespace varda::schema
