// artifacts serve: a directory of archives over HTTP.
#pragma once

#include <CLI/CLI.hpp>

#include "command.h"

namespace varda::app {

/// Below `artifacts`.
void add_serve_command(CLI::App& artifacts, Program program);

}  // namespace varda::app
