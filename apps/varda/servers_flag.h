// --servers: a file that sets which server runs the models of a framework.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "hosting/servers.h"

namespace varda::app {

/// Reads a YAML file "servers: {FRAMEWORK: {image: …}}". The entries replace those of the built-in
/// table. kInvalid names the file and the field.
Result<hosting::ServerTable> read_servers(const std::filesystem::path& file);

}  // namespace varda::app
