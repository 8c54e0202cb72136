// varda: control plane, nodes and command line in one program. This file parses and dispatches. The
// files of the subcommands build the objects.
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../config_file.h"
#include "../help.h"
#include "command.h"
#include "os/process.h"
#include "train_command.h"

namespace varda::app {
namespace {

bool takes_files(const CLI::App& command) {
  return command.get_option_no_throw("--filename") != nullptr;
}

/// The message for a wrong command line. An unknown argument is named first: the problem of "get
/// --bogus" is the flag, not the missing resource.
std::string explain(const CLI::App* parser, const CLI::Error& error) {
  std::string name = "varda";
  const CLI::App* command = parser;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  const std::vector<std::string> unknown = parser->remaining(true);
  std::string why = error.what();
  if (!unknown.empty()) {
    if (unknown.front().rfind('-', 0) == 0) {
      why = name + " has no flag " + unknown.front();
    } else if (command->get_require_subcommand_min() > 0) {
      why = name + " has no command " + unknown.front();
    } else {
      why = name + " takes no argument \"" + unknown.front() + "\"" +
            (takes_files(*command) ? "; name a file with -f" : "");
    }
  }
  return "error: " + why + "\n`" + name + " --help` lists commands and flags\n";
}

int run(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "train") {
    const Error error = exec_train(argv + 2);
    std::fprintf(stderr, "error: %s\n", error.message().c_str());
    return 1;
  }
  CLI::App parser(
      "Varda: edge AI for Kubernetes and KubeEdge. `varda up` starts everything on this machine.",
      "varda");
  parser.formatter(std::make_shared<HelpFormatter>(help_width()));
  parser.set_version_flag("-v,--version", "varda " VARDA_VERSION, "print the version");
  parser.require_subcommand(1);
  parser.failure_message(explain);
  Globals globals;
  Run chosen;
  std::function<Status()> before;
  Program program{parser, globals, chosen, before};
  add_all_commands(program);
  try {
    parse_with_config(parser, std::vector<std::string>(argv + 1, argv + argc));
  } catch (const CLI::ParseError& e) {
    if (argc == 1) {
      std::fputs(parser.help().c_str(), stderr);
      return 2;
    }
    return parser.exit(e, std::cout, std::cerr) == 0 ? 0 : 2;
  }

  Status status = before ? before() : Status();
  if (status.ok()) status = chosen(Context(os::stop_on_signals()));
  if (status.ok()) return 0;
  // The user stops a watch with a signal: that is no failure.
  if (status.error().code() == Code::kCancelled) return 130;
  std::fprintf(stderr, "error: %s\n", status.error().message().c_str());
  return 1;
}

}  // namespace
}  // namespace varda::app

int main(int argc, char** argv) {
  try {
    return varda::app::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
