// Flags of the controllers, for `varda operator` and `varda up`: servers, images, the edge network,
// keys of models.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "command.h"
#include "hosting/servers.h"

namespace varda::app {

struct ControllerFlags {
  std::string servers, serve_image, train_image, aggregate_image, fetch_image, edge_network,
      model_keys, edge_authority;
};

/// Adds --serve-image, --train-image, --aggregate-image, --fetch-image, --edge-network and
/// --model-keys, --edge-authority. Each command adds --servers itself, since the defaults differ,
/// and reads --edge-authority.
void add_controller_flags(CLI::App& command, ControllerFlags& flags);

/// `servers`: the file of --servers or its default; empty: the built-in table. kInvalid names the
/// flag, the file and the field.
Result<hosting::Options> model_options(const ControllerFlags& flags,
                                       const std::filesystem::path& servers);

}  // namespace varda::app
