// Credentials for archive sources, from Secrets at the API server.
#pragma once

#include "artifact/credentials.h"
#include "kube/client.h"

namespace varda::agent::models {

/// Names are NAMESPACE/NAME of a Secret. A Secret is read on each use and never persisted.
/// Installed artifacts need no download, so a start without network needs no Secret. Thread-safe.
class SecretCredentials final : public artifact::CredentialReader {
 public:
  /// `client` outlives it.
  explicit SecretCredentials(const kube::Client& client) : client_(client) {}
  artifact::Outcome<artifact::Credentials> read(const Context& ctx,
                                                const std::string& name) override;

 private:
  const kube::Client& client_;
};

}  // namespace varda::agent::models
