// Flags from a file, for --config of every program and subcommand.
//
//   # a comment, on a line of its own
//   listen = 127.0.0.1:6443
//   node = cloud
//   node = edge0=edge
//   detach = true
//
// A line names a flag without its dashes. Repeated lines give the values of a repeatable flag.
// Double quotes around a value are removed. A flag on the command line replaces all lines of that
// flag.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace varda::app {

/// Error messages name the file and the line. Errors are exceptions here, since CLI11 throws too.
class ConfigFile {
 public:
  /// Throws CLI::FileError for an unreadable file, and CLI::ConfigError for a line without '='.
  static ConfigFile read(const std::string& path) {
    ConfigFile out(path);
    errno = 0;
    std::ifstream in(path);
    if (!in) throw CLI::FileError("--config " + path + ": " + std::strerror(errno));
    std::string text;
    for (std::size_t number = 1; std::getline(in, text); ++number) {
      const std::string_view line = trim(text);
      if (line.empty() || line.front() == '#') continue;
      const std::size_t equals = line.find('=');
      if (equals == std::string_view::npos || equals == 0)
        throw CLI::ConfigError(out.place(number) + "\"" + std::string(line) +
                               "\" is not of the form NAME = VALUE");
      std::string_view value = trim(line.substr(equals + 1));
      if (value.size() >= 2 && value.front() == '"' && value.back() == '"')
        value = value.substr(1, value.size() - 2);
      out.lines_.push_back({std::string(trim(line.substr(0, equals))), std::string(value), number});
    }
    if (in.bad()) throw CLI::FileError("--config " + path + ": " + std::strerror(errno));
    return out;
  }

  /// Returns arguments for the flags that the parsed command line of `command` did not set. Throws
  /// CLI::ConfigError for an unknown flag, and for a second line of a flag that takes one value.
  std::vector<std::string> arguments(const CLI::App& command, const std::string& title) {
    std::vector<std::string> out;
    for (Line& line : lines_) {
      const CLI::Option* const option = command.get_option_no_throw("--" + line.name);
      if (option == nullptr || !option->get_configurable())
        throw CLI::ConfigError(place(line.number) + "`" + title + "` has no flag \"" + line.name +
                               "\"");
      if (option->get_items_expected_max() <= 1 && !option->get_allow_extra_args())
        check_single(line);
      line.used = option->count() == 0;
      if (!line.used) continue;
      if (option->get_items_expected_max() == 0) {
        if (line.value != "true" && line.value != "false")
          throw CLI::ConfigError(place(line.number) + line.name + " must be true or false, not \"" +
                                 line.value + "\"");
        out.push_back("--" + line.name + "=" + line.value);
      } else {
        // Two arguments: CLI11 takes "--name=" for a flag without a value.
        out.push_back("--" + line.name);
        out.push_back(line.value);
      }
    }
    return out;
  }

  /// Finds the line with the flag that `message` names: "FILE:3: ", or "" without such a line.
  std::string place_of_flag_in(const std::string& message) const {
    for (const Line& line : lines_) {
      const std::string flag = "--" + line.name;
      const std::size_t at = message.find(flag);
      if (!line.used || at == std::string::npos) continue;
      const char next = at + flag.size() < message.size() ? message[at + flag.size()] : ' ';
      const bool longer = next == '-' || std::isalnum(static_cast<unsigned char>(next)) != 0;
      if (!longer) return place(line.number);
    }
    return "";
  }

 private:
  struct Line {
    std::string name, value;
    std::size_t number = 0;  // from 1
    bool used = false;       // the command line does not set the flag
  };

  explicit ConfigFile(std::string path) : path_(std::move(path)) {}

  std::string place(std::size_t line) const { return path_ + ":" + std::to_string(line) + ": "; }

  void check_single(const Line& line) const {
    const auto first = std::find_if(lines_.begin(), lines_.end(),
                                    [&](const Line& other) { return other.name == line.name; });
    if (first->number != line.number)
      throw CLI::ConfigError(place(line.number) + line.name + " takes one value, and line " +
                             std::to_string(first->number) + " already gives one");
  }

  std::string path_;
  std::vector<Line> lines_;
};

/// Parses a command line without the program's name, and the file of --config if the chosen command
/// has this flag. Throws what CLI::App::parse() throws.
inline void parse_with_config(CLI::App& parser, const std::vector<std::string>& arguments) {
  // The first pass finds the command, the file and the flags on the command line. Required flags
  // may be in the file.
  const auto parse = [&parser](std::vector<std::string> all) {
    std::reverse(all.begin(), all.end());
    parser.parse(std::move(all));
  };
  const auto config_of_chosen = [&parser](const CLI::App*& command,
                                          std::string& title) -> std::string {
    command = &parser;
    title = parser.get_name();
    while (!command->get_subcommands().empty()) {
      command = command->get_subcommands().front();
      title += " " + command->get_name();
    }
    const CLI::Option* const config = command->get_option_no_throw("--config");
    return config == nullptr || config->count() == 0 ? "" : config->results().back();
  };
  const CLI::App* command = nullptr;
  std::string title;
  std::string path;
  try {
    parse(arguments);
    path = config_of_chosen(command, title);
    if (path.empty()) return;
  } catch (const CLI::Success&) {  // --help, --version
    throw;
  } catch (const CLI::RequiredError&) {
    path = config_of_chosen(command, title);
    if (path.empty()) throw;
  }
  ConfigFile file = ConfigFile::read(path);
  const std::vector<std::string> more = file.arguments(*command, title);
  std::vector<std::string> all = arguments;
  // At the end: a flag with many values would take arguments behind it as values.
  all.insert(std::find(all.begin(), all.end(), "--"), more.begin(), more.end());
  try {
    parse(std::move(all));
  } catch (const CLI::Success&) {
    throw;
  } catch (const CLI::ParseError& error) {
    const std::string where = file.place_of_flag_in(error.what());
    if (where.empty()) throw;
    throw CLI::ValidationError(where + error.what());
  }
}

}  // namespace varda::app
