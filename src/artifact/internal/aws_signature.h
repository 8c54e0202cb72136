// AWS Signature Version 4 for S3 requests without a body, from its published description ("Signature Calculations for the
// Authorization Header: Transferring Payload in a Single Chunk", Amazon S3 API Reference). No I/O, no clock.
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

/// Every byte but unreserved characters as %XX; '/' stays.
std::string aws_encode_path(std::string_view path);

/// HMAC-SHA-256 (FIPS 198-1), the 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view text);

/// Adds X-Amz-Date, X-Amz-Content-Sha256, X-Amz-Security-Token and Authorization to a request whose Host, Range and If-Range, as
/// far as it has them, are signed too. `path` is encoded, without a query; `host` as the request will say it.
void aws_sign(net::ClientRequest& request, std::string_view host, std::string_view path, const AwsKey& key, WallTime now);

}  // namespace varda::artifact
