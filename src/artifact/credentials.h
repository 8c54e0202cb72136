// What a source asks for before it gives an archive: values that live in memory only, and never in a message or a log.
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
  // http and https: the token if there is one, else user and password. Sent to the origin of the URL only, never after a redirect
  // to another one.
  std::string username, password;
  std::string token;
  // s3: without a key, requests are not signed (public buckets).
  std::string access_key_id, secret_access_key, session_token;
  std::string region;    // "" us-east-1
  std::string endpoint;  // "https://minio.example:9000": path-style requests go there; "" that of AWS
  std::string ca_pem;    // trusted besides the machine's for these sources; "" nothing more
  // Hosts that may get them: "files.example", "files.example:8443", "*.example". Nothing: the host of Request::url. The host of
  // `endpoint` may get signed requests without being listed.
  std::optional<std::vector<std::string>> hosts = {};
  bool allow_http = false;  // token and password may go over plain http, where they can be read; loopback needs no permission
};

inline constexpr std::string_view kFilesSecretType = "edgeai.io/files";

/// A Secret as an API server shows it, or as much of it as a volume does.
struct SecretFacts {
  std::map<std::string, std::string> keys;
  std::string type = {};                                // "" not known
  std::map<std::string, std::string> annotations = {};  // likewise
};

/// Reads the keys of a Secret, and checks that the Secret is meant for file servers: it has `hosts` (a key, or the annotation
/// edgeai.io/hosts), or the type edgeai.io/files, or only an endpoint of its own for s3. `allow-http` is a key or the annotation
/// edgeai.io/allow-http. Otherwise a model could send any Secret of its namespace to a server of its author's choice.
/// kCredentialsMissing: as parse_credentials(). kCredentialsInvalid names what to add; a service account's token is never taken.
/// `shown` names the Secret in messages.
Outcome<Credentials> credentials_of(const std::string& shown, const SecretFacts& secret);

/// Reads the keys of a Secret: `username` + `password`, `token`, `AWS_ACCESS_KEY_ID` + `AWS_SECRET_ACCESS_KEY` [+
/// `AWS_SESSION_TOKEN`] [+ `AWS_REGION`] [+ `AWS_ENDPOINT_URL`], `ca.crt`, `hosts`, `allow-http`; others mean nothing. One line
/// break at the end of a value is not part of it. kInvalid names the key that is missing, or says that there is none at all; it
/// never quotes a value.
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
