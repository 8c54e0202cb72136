// What sources of archives ask for, from Secrets at the API server.
#pragma once

#include "artifact/credentials.h"
#include "kube/client.h"

namespace varda::agent {

/// Names are NAMESPACE/NAME of a Secret, read when it is needed and never kept: what is on disk needs no download, so a node that
/// starts without a network needs no Secret. Thread-safe.
class SecretCredentials final : public artifact::CredentialReader {
 public:
  /// `client` outlives it.
  explicit SecretCredentials(const kube::Client& client) : client_(client) {}
  artifact::Outcome<artifact::Credentials> read(const Context& ctx, const std::string& name) override;

 private:
  const kube::Client& client_;
};

}  // namespace varda::agent
