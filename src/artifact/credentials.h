// Credentials that sources require. The values stay in memory, and never appear in messages or
// logs.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/failure.h"
#include "base/context.h"
#include "base/result.h"

namespace varda::artifact {

struct Credentials {
  // http and https: the token if set, else user and password. Sent to the origin of the URL only,
  // never after a redirect to another origin.
  std::string username, password;
  std::string token;
  // s3: without a key, requests are not signed (public buckets).
  std::string access_key_id, secret_access_key, session_token;
  std::string region;    // "" us-east-1
  std::string endpoint;  // "https://minio.example:9000", for path-style requests; "": AWS
  std::string ca_pem;    // trusted for these sources besides the machine's CAs; "": no addition
  // Hosts that may get the credentials: "files.example", "files.example:8443", "*.example". Absent:
  // the host of Request::url. The host of `endpoint` may get signed requests without being listed.
  std::optional<std::vector<std::string>> hosts = {};
  bool allow_http = false;  // allows token and password over plain http; loopback is always allowed
};

inline constexpr std::string_view kFilesSecretType = "edgeai.io/files";

/// A Secret as read from the API server, or the part of it that a volume shows.
struct SecretFacts {
  std::map<std::string, std::string> keys;
  std::string type = {};                                // "": unknown
  std::map<std::string, std::string> annotations = {};  // empty: unknown
};

/// Reads the keys of a Secret and checks that the Secret is meant for file servers. It must have
/// `hosts` (a key, or the annotation edgeai.io/hosts), the type edgeai.io/files, or only its own s3
/// endpoint. `allow-http` is a key or the annotation edgeai.io/allow-http. Without the check, a
/// model could send any Secret of its namespace to an arbitrary server. kCredentialsMissing: as
/// parse_credentials(). kCredentialsInvalid names the missing addition. Service account tokens are
/// always refused. `shown` names the Secret in messages.
Outcome<Credentials> credentials_of(const std::string& shown, const SecretFacts& secret);

/// Reads the keys of a Secret: `username` + `password`, `token`, `AWS_ACCESS_KEY_ID` +
/// `AWS_SECRET_ACCESS_KEY` [+ `AWS_SESSION_TOKEN`] [+ `AWS_REGION`] [+ `AWS_ENDPOINT_URL`],
/// `ca.crt`, `hosts`, `allow-http`. Other keys are ignored. One line break at the end of a value is
/// removed. kInvalid names the missing key, or reports that no known key is set. It never quotes a
/// value.
Result<Credentials> parse_credentials(const std::map<std::string, std::string>& keys);

/// Finds credentials by name. Thread-safe.
class CredentialReader {
 public:
  virtual ~CredentialReader() = default;
  /// Called for each download, so that a changed Secret takes effect. Fails with
  /// kCredentialsMissing, kCredentialsForbidden, kCancelled, or kDownloadFailed if the Secret
  /// cannot be read now.
  virtual Outcome<Credentials> read(const Context& ctx, const std::string& name) = 0;
};

}  // namespace varda::artifact
