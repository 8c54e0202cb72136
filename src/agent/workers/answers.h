// Answers of the worker API, and the token of a request.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/json.h"
#include "net/http.h"

namespace varda::agent::workers {

net::Response json_response(int status, const codec::Json& body);
/// A Kubernetes Status of status `Failure`.
net::Response problem(int code, const char* reason, std::string message);
net::Response problem(const Error& error);
/// An acknowledgement: the item, and whether it is safe from a power cut.
net::Response acknowledgement(std::string item, bool durable);
/// The token in `Authorization: Bearer TOKEN`.
std::optional<std::string_view> bearer(const net::Request& request);

}  // namespace varda::agent::workers
