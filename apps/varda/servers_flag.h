// --servers: which server runs the models of a framework, as the operator's administrator wants it.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "controllers/inferencemodel/options.h"

namespace varda::app {

/// Reads a YAML file "servers: {FRAMEWORK: {image: …}}" over the built-in table. kInvalid names the file and the field.
Result<controllers::ServerTable> read_servers(const std::filesystem::path& file);

}  // namespace varda::app
