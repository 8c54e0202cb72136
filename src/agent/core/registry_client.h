// RegistryClient: the registry behind a node's API server or gateway, with the node's credentials.
#pragma once

#include "kube/client.h"
#include "net/http.h"

namespace varda::agent::core {

/// Sends requests with targets like "/v1/blobs/sha256:HEX". Answers have at most 1 MiB.
/// Thread-safe.
class RegistryClient final : public net::HttpClient {
 public:
  /// `api` outlives the client.
  explicit RegistryClient(const kube::Client& api) : api_(api) {}
  Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override;

 private:
  const kube::Client& api_;
};

}  // namespace varda::agent::core
