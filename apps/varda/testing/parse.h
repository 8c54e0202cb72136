// Command lines for tests of flags.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace varda::app::testing {

/// Parses `arguments` with the flags that `add` adds; returns what is wrong with them, or "".
inline std::string parse(const std::function<void(CLI::App&)>& add,
                         std::vector<std::string> arguments) {
  CLI::App parser;
  add(parser);
  std::reverse(arguments.begin(), arguments.end());
  try {
    parser.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "";
}

}  // namespace varda::app::testing
