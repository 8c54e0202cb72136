// Shell completion of command lines, from the same parser as --help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace varda::app {

/// Returns a script for bash, or for zsh with bashcompinit. The script completes commands, flags,
/// and values of flags that have a fixed set of values. Everything else is completed as file names.
std::string completion_script(const CLI::App& parser, const std::string& shell);

}  // namespace varda::app
