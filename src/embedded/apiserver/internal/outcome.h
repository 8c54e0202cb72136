// Outcome<T>: a value, or the complete Kubernetes Status that the client gets. Functions below make
// the statuses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apiserver/kind.h"
#include "meta/status.h"

namespace varda::apiserver {

using meta::ApiStatus;

template <typename T>
using Outcome = Result<T, ApiStatus>;

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
ApiStatus too_many_operations(std::size_t limit, std::size_t count);
ApiStatus too_many_requests(std::string message);
/// Maps a store error to a Status.
ApiStatus store_failure(const Error& error);

/// `"message"` quoted like Go's %q.
std::string in_quotes(std::string_view text);

}  // namespace varda::apiserver
