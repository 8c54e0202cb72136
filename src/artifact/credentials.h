// What a source asks for before it gives an archive: values that live in memory only, and never in a message or a log.
#pragma once

#include <map>
#include <string>

#include "artifact/failure.h"
#include "base/context.h"
#include "base/result.h"

namespace varda::artifact {

struct Credentials {
  // http and https: the token if there is one, else user and password. Sent to the origin of the URL only, never after a redirect
  // to another one.
  std::string username, password;
  std::string token;
  // s3: without a key, requests are not signed (public buckets).
  std::string access_key_id, secret_access_key, session_token;
  std::string region;    // "" us-east-1
  std::string endpoint;  // "https://minio.example:9000": path-style requests go there; "" that of AWS
  std::string ca_pem;    // trusted besides the machine's for these sources; "" nothing more
};

/// Reads the keys of a Secret: `username` + `password`, `token`, `AWS_ACCESS_KEY_ID` + `AWS_SECRET_ACCESS_KEY` [+
/// `AWS_SESSION_TOKEN`] [+ `AWS_REGION`] [+ `AWS_ENDPOINT_URL`], `ca.crt`; others mean nothing. One line break at the end of a
/// value is not part of it. kInvalid names the key that is missing, or says that there is none at all; it never quotes a value.
Result<Credentials> parse_credentials(const std::map<std::string, std::string>& keys);

/// Knows credentials by name. Thread-safe.
class CredentialReader {
 public:
  virtual ~CredentialReader() = default;
  /// Asked for each download anew, so that a Secret that changed is read as it is now. Fails with kCredentialsMissing,
  /// kCredentialsForbidden, kCancelled, or kDownloadFailed where nobody can be asked now.
  virtual Outcome<Credentials> read(const Context& ctx, const std::string& name) = 0;
};

}  // namespace varda::artifact
