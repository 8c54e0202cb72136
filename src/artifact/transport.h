// Optional helpers for downloads, besides an HTTP client.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "artifact/credentials.h"
#include "base/clock.h"
#include "base/rng.h"
#include "net/http.h"

namespace varda::artifact {

struct Transport {
  CredentialReader* credentials =
      nullptr;  // null: a request that names credentials fails with kCredentialsMissing
  /// Makes a client that also trusts these certificates, for Secrets with a `ca.crt`. Empty: such
  /// Secrets are refused.
  std::function<std::unique_ptr<net::HttpClient>(const std::string& ca_pem)> trusting;
  Rng* rng = nullptr;            // null: no pause between sources
  const Clock* clock = nullptr;  // null: the machine's
};

}  // namespace varda::artifact
