// Completion of command lines by a shell, from the same parser as --help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace varda::app {

/// A script for bash, or for zsh (which runs it with its bashcompinit). It completes commands, flags and the values of flags that
/// have a fixed set of values; all other words are completed as file names.
std::string completion_script(const CLI::App& parser, const std::string& shell);

}  // namespace varda::app
