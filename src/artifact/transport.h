// What downloads are made with, besides an HTTP client: all of it optional.
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
  CredentialReader* credentials = nullptr;  // null: a request that names credentials fails with kCredentialsMissing
  /// A client like the one given, that trusts these certificates too: for Secrets with a `ca.crt`. Empty: they are refused.
  std::function<std::unique_ptr<net::HttpClient>(const std::string& ca_pem)> trusting;
  Rng* rng = nullptr;            // null: no pause between sources
  const Clock* clock = nullptr;  // null: the machine's
};

}  // namespace varda::artifact
