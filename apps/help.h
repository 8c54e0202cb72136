// --help of both programs, wrapped at the width of the terminal.
//
// If a command has --help-all, then --help shows only flags without a group.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "codec/text.h"

namespace varda::app {

/// Columns of the terminal behind standard output, at least 40; 80 where it is no terminal.
inline std::size_t help_width() {
  winsize size{};
  const bool terminal = ::isatty(STDOUT_FILENO) != 0 &&
                        ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return terminal ? std::max<std::size_t>(size.ws_col, 40) : 80;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::size_t width) : width_(width) {}

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    const bool all = mode == CLI::AppFormatMode::All || app->get_help_all_ptr() == nullptr;
    std::string out = wrapped(app->get_description(), 0) + make_usage(app, std::move(name));
    out += make_positionals(app);
    std::string hidden;
    for (const std::string& group : app->get_groups()) {
      const std::vector<const CLI::Option*> options =
          app->get_options([&group](const CLI::Option* option) {
            return option->get_group() == group && option->nonpositional();
          });
      if (group.empty() || options.empty()) continue;
      if (all || group == kPlainGroup) {
        out += make_group(group, /*is_positional=*/false, options);
      } else {
        hidden += (hidden.empty() ? "" : "; ") + group;
      }
    }
    if (!hidden.empty()) out += "\n" + wrapped("--help-all shows further flags: " + hidden, 0);
    return out + make_subcommands(app, mode);
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return row(make_option_name(option, is_positional) + make_option_opts(option),
               make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return row(command->get_name(), command->get_description());
  }

 private:
  static constexpr const char* kPlainGroup = "Options";  // CLI11's name for flags without a group

  /// Wraps at width_ columns and indents all lines but the first. A longer word gets its own line.
  std::string wrapped(std::string_view text, std::size_t indent) const {
    std::string out;
    std::size_t used = indent;
    bool first = true;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find(' '), text.size());
      const std::string_view word = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (!first && used + 1 + codec::utf8_length(word) > width_) {
        out += "\n" + std::string(indent, ' ');
        used = indent;
      } else if (!first) {
        out += ' ';
        ++used;
      }
      out += word;
      used += codec::utf8_length(word);
      first = false;
    }
    return out + "\n";
  }

  std::string row(const std::string& name, const std::string& text) const {
    const std::size_t column = std::min(get_column_width(), width_ / 2);
    std::string out = "  " + name;
    if (text.empty()) return out + "\n";
    const std::size_t used = codec::utf8_length(out);
    out += used + 2 > column ? "\n" + std::string(column, ' ') : std::string(column - used, ' ');
    return out + wrapped(text, column);
  }

  const std::size_t width_;
};

}  // namespace varda::app
