// Documents with an entity tag: a client that has one is told that it is still good.
#pragma once

#include <string>
#include <string_view>

#include "net/http.h"

namespace varda::apiserver {

/// SHA-256, in capital hex digits.
std::string hash_of(std::string_view document);

/// The response with its tag; 304 without a body where If-None-Match names it (RFC 9110, 13.1.2).
net::Response tagged(const net::Request& request, net::Response response, std::string_view hash);

}  // namespace varda::apiserver
