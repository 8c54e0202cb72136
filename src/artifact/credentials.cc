#include "artifact/credentials.h"

#include <utility>

#include "base/text.h"

namespace varda::artifact {
namespace {

std::string value_of(const std::map<std::string, std::string>& keys, const char* key,
                     const char* other = nullptr) {
  auto found = keys.find(key);
  if (found == keys.end() && other != nullptr) found = keys.find(other);
  if (found == keys.end()) return "";
  std::string value = found->second;
  // `echo secret > file; kubectl create secret --from-file` leaves a line break at the end.
  if (value.ends_with('\n')) value.pop_back();
  if (value.ends_with('\r')) value.pop_back();
  return value;
}

Status together(const char* one, const std::string& first, const char* other,
                const std::string& second) {
  if (first.empty() == second.empty()) return {};
  return Error(Code::kInvalid, std::string("it has ") + (first.empty() ? other : one) + " and no " +
                                   (first.empty() ? one : other));
}

/// Splits names separated by commas or blanks, in lower case.
std::vector<std::string> parse_hosts(std::string_view text) {
  std::vector<std::string> out;
  std::string host;
  for (const char c : std::string(text) + ",") {
    if (c != ',' && c != ' ' && c != '\t' && c != '\n' && c != '\r') {
      host += lower(c);
    } else if (!host.empty()) {
      out.push_back(std::exchange(host, {}));
    }
  }
  return out;
}

}  // namespace

Outcome<Credentials> credentials_of(const std::string& shown, const SecretFacts& secret) {
  const auto invalid = [&](const std::string& why) {
    return Failure{Reason::kCredentialsInvalid, Error(Code::kInvalid, shown + " " + why)};
  };
  const auto has = [&](const char* key) { return secret.keys.contains(key); };
  if (secret.type == "kubernetes.io/service-account-token" ||
      (has("token") && has("ca.crt") && has("namespace")))
    return invalid("is a service account token, which is never sent to a file server");
  std::map<std::string, std::string> keys = secret.keys;
  for (const char* name : {"hosts", "allow-http"}) {
    const auto annotation = secret.annotations.find(std::string("edgeai.io/") + name);
    if (annotation != secret.annotations.end()) keys[name] = annotation->second;
  }
  Result<Credentials> credentials = parse_credentials(keys);
  if (!credentials.ok())
    return Failure{Reason::kCredentialsMissing, Error(credentials.error()).context(shown)};
  const bool secrets = !credentials->username.empty() || !credentials->token.empty() ||
                       !credentials->access_key_id.empty();
  if (credentials->hosts || !secrets || secret.type == kFilesSecretType)
    return std::move(credentials).value();
  if (credentials->endpoint.empty())
    return invalid(
        "does not name the servers that may get it: add a key hosts, such as \"files.example\"");
  credentials->hosts.emplace();
  return std::move(credentials).value();
}

Result<Credentials> parse_credentials(const std::map<std::string, std::string>& keys) {
  Credentials out;
  out.username = value_of(keys, "username");
  out.password = value_of(keys, "password");
  out.token = value_of(keys, "token");
  out.access_key_id = value_of(keys, "AWS_ACCESS_KEY_ID");
  out.secret_access_key = value_of(keys, "AWS_SECRET_ACCESS_KEY");
  out.session_token = value_of(keys, "AWS_SESSION_TOKEN");
  out.region = value_of(keys, "AWS_REGION", "AWS_DEFAULT_REGION");
  out.endpoint = value_of(keys, "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3");
  out.ca_pem = value_of(keys, "ca.crt");
  if (keys.contains("hosts")) out.hosts = parse_hosts(keys.at("hosts"));
  const std::string allow_http = value_of(keys, "allow-http");
  if (allow_http != "" && allow_http != "true" && allow_http != "false")
    return Error(Code::kInvalid, "allow-http must be \"true\" or \"false\"");
  out.allow_http = allow_http == "true";
  TRY_VOID(together("username", out.username, "password", out.password));
  TRY_VOID(together("AWS_ACCESS_KEY_ID", out.access_key_id, "AWS_SECRET_ACCESS_KEY",
                    out.secret_access_key));
  for (const std::string* value : {&out.username, &out.password, &out.token, &out.access_key_id,
                                   &out.session_token, &out.region})
    if (value->find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos)
      return Error(Code::kInvalid, "a value has a line break in it");
  if (out.username.find(':') != std::string::npos)
    return Error(Code::kInvalid, "username has a colon in it");  // RFC 7617, 2
  if (out.username.empty() && out.token.empty() && out.access_key_id.empty() &&
      out.endpoint.empty() && out.ca_pem.empty())
    return Error(Code::kInvalid,
                 "it has none of the keys username and password, token, AWS_ACCESS_KEY_ID and "
                 "AWS_SECRET_ACCESS_KEY, "
                 "AWS_ENDPOINT_URL, ca.crt");
  return out;
}

}  // namespace varda::artifact
