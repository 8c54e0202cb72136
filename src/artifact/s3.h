// Addresses and signatures of requests to S3 and compatible servers. No I/O, no clock.
//
// AWS Signature Version 4 follows its published description ("Signature Calculations for the
// Authorization Header: Transferring Payload in a Single Chunk", Amazon S3 API Reference).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "artifact/credentials.h"
#include "base/clock.h"
#include "net/http.h"
#include "net/url.h"

namespace varda::artifact {

struct AwsKey {
  std::string id, secret, session_token;
  std::string region;
};

/// Encodes all but unreserved characters as %XX; '/' stays.
std::string aws_encode_path(std::string_view path);

/// HMAC-SHA-256 (FIPS 198-1), as 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view text);

/// The key of the credentials, with the default region if they have none.
AwsKey aws_key(const Credentials& credentials);

/// Adds X-Amz-Date, X-Amz-Content-Sha256 of the body, X-Amz-Security-Token and Authorization. Host
/// and, if present, Range and If-Range are signed too. `target` is encoded; the parameters of its
/// query are sorted, each with a '='. `host` equals the Host header to be sent.
void aws_sign(net::ClientRequest& request, std::string_view host, std::string_view target,
              const AwsKey& key, WallTime now);

/// The HTTP address of an s3 URL. kInvalid: no bucket, no key, or an endpoint that is not an http
/// or https URL.
Result<net::Url> s3_address(const net::Url& url, const Credentials& credentials);

}  // namespace varda::artifact
