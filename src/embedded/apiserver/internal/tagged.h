// Entity tags: a client with the current version of a document gets 304.
#pragma once

#include <string>
#include <string_view>

#include "net/http.h"

namespace varda::apiserver {

/// SHA-256, in capital hex digits.
std::string hash_of(std::string_view document);

/// Adds the ETag; 304 without a body if If-None-Match has it (RFC 9110, 13.1.2).
net::Response tagged(const net::Request& request, net::Response response, std::string_view hash);

}  // namespace varda::apiserver
