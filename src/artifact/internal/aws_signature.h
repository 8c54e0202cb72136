// AWS Signature Version 4 for S3 requests without a body, from its published description
// ("Signature Calculations for the Authorization Header: Transferring Payload in a Single Chunk",
// Amazon S3 API Reference). No I/O, no clock.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "net/http.h"

namespace varda::artifact {

struct AwsKey {
  std::string id, secret, session_token;
  std::string region;
};

/// Encodes all but unreserved characters as %XX; '/' stays.
std::string aws_encode_path(std::string_view path);

/// HMAC-SHA-256 (FIPS 198-1), as 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view text);

/// Adds X-Amz-Date, X-Amz-Content-Sha256, X-Amz-Security-Token and Authorization. Host and, if
/// present, Range and If-Range are signed too. `path` is encoded and has no query; `host` equals
/// the Host header to be sent.
void aws_sign(net::ClientRequest& request, std::string_view host, std::string_view path,
              const AwsKey& key, WallTime now);

}  // namespace varda::artifact
