// Model access: the flags by which a command shows its credentials to a closed model.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/result.h"
#include "net/client.h"

namespace varda::app {

struct ModelAccessFlags {
  std::string ca_file, token_file, cert, key;  // paths; "" is absent
};
void add_model_access_flags(CLI::App& command, ModelAccessFlags& flags);

struct ModelAccess {
  std::string ca_pem;  // trusted besides the machine's authorities
  std::string certificate_pem, key_pem;
  std::string token;
};
/// Reads the files. kInvalid: no certificate, key or token in a file, or a key of another
/// certificate. An error names the flag and no secret.
Result<ModelAccess> read_model_access(const ModelAccessFlags& flags);

/// Sends the token with each request, over plain HTTP too.
std::unique_ptr<net::HttpClient> make_model_client(const ModelAccess& access,
                                                   std::size_t idle_connections_max = 16);

}  // namespace varda::app
