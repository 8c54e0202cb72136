// Outcome<T>: a value, or the complete Kubernetes Status that the client gets. Similar to
// Result<T>; TRY and TRY_VOID work on it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "apiserver/kind.h"
#include "meta/status.h"

namespace varda::apiserver {

using meta::ApiStatus;

template <typename T>
class [[nodiscard]] Outcome {
 public:
  Outcome(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: conversions are the point
  Outcome(ApiStatus status) : state_(std::in_place_index<1>, std::move(status)) {}  // NOLINT
  bool ok() const { return state_.index() == 0; }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  T* operator->() { return &value(); }
  const ApiStatus& error() const& { return std::get<1>(state_); }
  ApiStatus&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, ApiStatus> state_;
};

template <>
class [[nodiscard]] Outcome<void> {
 public:
  Outcome() = default;
  Outcome(ApiStatus status) : status_(std::move(status)) {}  // NOLINT
  bool ok() const { return !status_.has_value(); }
  const ApiStatus& error() const& { return *status_; }
  ApiStatus&& error() && { return *std::move(status_); }

 private:
  std::optional<ApiStatus> status_;
};

// API failures, with the messages that clients match.
ApiStatus bad_request(std::string message);
ApiStatus not_found(const meta::Resource& resource, std::string_view name);
ApiStatus already_exists(const meta::Resource& resource, std::string_view name);
/// All names tried for a generateName were taken; the client may retry.
ApiStatus generated_name_taken(const meta::Resource& resource, std::string_view name);
/// "Operation cannot be fulfilled on RESOURCE "name": why".
ApiStatus conflict(const meta::Resource& resource, std::string_view name, std::string_view why);
/// The object changed since the writer read it.
ApiStatus modified_conflict(const meta::Resource& resource, std::string_view name);
/// `KIND.GROUP "name" is invalid: causes`.
ApiStatus invalid(std::string_view group, std::string_view kind, std::string_view name,
                  std::vector<StatusCause> causes);
ApiStatus forbidden(const meta::Resource& resource, std::string_view name, std::string_view why);
ApiStatus method_not_allowed();  // no such verb on this path
ApiStatus verb_not_supported(const meta::Resource& resource,
                             std::string_view verb);  // wording of custom resources
ApiStatus resource_not_found();                       // "could not find the requested resource"
ApiStatus internal(std::string message);              // 500 with only this message
ApiStatus expired(std::string message);
ApiStatus unsupported_media_type(std::string_view accepted);
ApiStatus not_acceptable();
ApiStatus too_large(std::size_t limit);
/// For a JSON patch.
ApiStatus too_many_operations(std::size_t limit, std::size_t given);
ApiStatus too_many_requests(std::string message);
/// Maps a store error to a Status.
ApiStatus store_failure(const Error& error);

/// `"message"` quoted like Go's %q.
std::string in_quotes(std::string_view text);

}  // namespace varda::apiserver
