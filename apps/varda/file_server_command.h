// artifacts serve: serves a directory of archives over HTTP.
#pragma once

#include <CLI/CLI.hpp>

#include "command.h"

namespace varda::app {

/// Adds the subcommand to `artifacts`.
void add_serve_command(CLI::App& artifacts, Program program);

}  // namespace varda::app
