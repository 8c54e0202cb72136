// What an administrator tells the controllers, with the operator and on one machine: servers, images, the network of the edge.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "command.h"
#include "controllers/inferencemodel/options.h"

namespace varda::app {

struct ControllerFlags {
  std::string servers, serve_image, fetch_image, edge_network;
};

/// --serve-image, --fetch-image, --edge-network. --servers is the commands' own: where it is looked for differs.
void add_controller_flags(CLI::App& command, ControllerFlags& flags);

/// `servers`: the file of --servers, or of its default; empty: the built-in table. kInvalid names the file and the field.
Result<controllers::InferenceModelOptions> model_options(const ControllerFlags& flags, const std::filesystem::path& servers);

}  // namespace varda::app
