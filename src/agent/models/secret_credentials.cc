#include "agent/models/secret_credentials.h"

#include "codec/digest.h"

namespace varda::agent::models {
namespace {

using artifact::Failure;
using artifact::Reason;

constexpr std::chrono::seconds kPatience{15};

const meta::Resource& secrets_resource() {
  static const meta::Resource resource{"", "v1", "Secret", "secrets", true};
  return resource;
}

}  // namespace

artifact::Outcome<artifact::Credentials> SecretCredentials::read(const Context& ctx,
                                                                 const std::string& name) {
  const auto slash = name.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == name.size())
    return Failure{
        Reason::kCredentialsMissing,
        Error(Code::kInvalid, "credentials \"" + name + "\" must be NAMESPACE/NAME of a Secret")};
  const std::string ns = name.substr(0, slash);
  const auto secret =
      client_.get(ctx.with_timeout(kPatience), secrets_resource(), {ns, name.substr(slash + 1)});
  if (!secret.ok()) {
    if (Status status = ctx.check(); !status.ok())
      return Failure{Reason::kCancelled, status.error()};
    switch (secret.error().code()) {
      case Code::kNotFound:
        return Failure{Reason::kCredentialsMissing,
                       Error(Code::kNotFound, "there is no Secret " + name)};
      case Code::kForbidden:
      case Code::kUnauthenticated:
        return Failure{
            Reason::kCredentialsForbidden,
            Error(Code::kForbidden, "this node may not read Secret " + name +
                                        ": allow it with `kubectl label namespace " + ns +
                                        " edgeai.io/edge-secrets=allow`, and on a cluster `kubectl "
                                        "create rolebinding varda-edge-secrets -n " +
                                        ns +
                                        " --clusterrole=varda-edge-secrets "
                                        "--serviceaccount=varda-system:varda-gateway`")};
      default:
        return Failure{Reason::kDownloadFailed, Error(secret.error()).context("Secret " + name)};
    }
  }
  artifact::SecretFacts facts{.keys = {}, .type = (*secret)["type"].as_string()};
  for (const auto& [key, value] : (*secret)["data"].as_object()) {
    const auto bytes = codec::unbase64(value.as_string());
    if (!bytes.ok())
      return Failure{Reason::kCredentialsMissing,
                     Error(Code::kInvalid, "Secret " + name + ": key " + key + " is not base64")};
    facts.keys.emplace(key, *bytes);
  }
  for (const auto& [key, value] : (*secret)["metadata"]["annotations"].as_object())
    facts.annotations.emplace(key, value.as_string());
  return artifact::credentials_of("Secret " + name, facts);
}

}  // namespace varda::agent::models
