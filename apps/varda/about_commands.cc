// help, version and completion.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "command.h"
#include "completion.h"

namespace varda::app {
namespace {

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

/// Throws CLI::ValidationError for a name that is no command.
std::string help_of(const CLI::App& parser, const std::vector<std::string>& names) {
  const CLI::App* command = &parser;
  std::string title = parser.get_name();
  for (const std::string& name : names) {
    const CLI::App* below = nullptr;
    for (const CLI::App* one : command->get_subcommands({}))
      if (one->get_name() == name) below = one;
    if (below == nullptr) throw CLI::ValidationError(title + " has no command " + name);
    title += " " + name;
    command = below;
  }
  return command->get_formatter()->make_help(command, title, CLI::AppFormatMode::Normal);
}

}  // namespace

void add_about_commands(Program program) {
  Run& chosen = program.chosen;
  CLI::App& parser = program.parser;
  const auto names = std::make_shared<std::vector<std::string>>();
  CLI::App* help = parser.add_subcommand("help", "print the help of varda or of one command");
  help->add_option("command", *names, "names of a command, such as up, or models ls");
  help->callback([&parser, &chosen, names] {
    chosen = [text = help_of(parser, *names)](const Context&) -> Status {
      print(text);
      return {};
    };
  });

  CLI::App* version = parser.add_subcommand("version", "print the version");
  version->callback([&chosen] {
    chosen = [](const Context&) -> Status {
      print("varda " VARDA_VERSION "\n");
      return {};
    };
  });

  const auto shell = std::make_shared<std::string>();
  CLI::App* completion = parser.add_subcommand(
      "completion", "print a script that completes varda's command line in a shell");
  completion->add_option("shell", *shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  completion->callback([&parser, &chosen, shell] {
    chosen = [&parser, shell](const Context&) -> Status {
      print(completion_script(parser, *shell));
      return {};
    };
  });
}

}  // namespace varda::app
