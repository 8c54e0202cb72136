// The registry that the flags of a daemon name.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "net/http.h"
#include "registry/client.h"

namespace varda::app {

struct RegistryAccess {
  std::string url, token_file, ca_file;  // "": none
};

/// Reads the files and sets `target`. On a cluster, the files are a Secret that may not exist.
/// Null: no registry, or no token; then `without` says in the log what does not work. kInvalid: the
/// URL.
Result<std::unique_ptr<net::HttpClient>> connect_registry(const RegistryAccess& flags,
                                                          const std::string& without,
                                                          registry::Target& target);

}  // namespace varda::app
