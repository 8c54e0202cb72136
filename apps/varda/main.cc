// varda: control plane, nodes and command line in one program. This file parses and dispatches; what is composed stands in the
// files of the subcommands.
#include <cstdio>
#include <exception>

#include "command.h"
#include "os/process.h"

namespace varda::app {

namespace {

/// What was wrong on the command line, and where to read on. What nobody understood is named first: "get --bogus" is not short of a
/// resource, but has a flag that there is not.
std::string explain(const CLI::App* parser, const CLI::Error& error) {
  const auto chosen = parser->get_subcommands();
  const std::string name = chosen.empty() ? "varda" : "varda " + chosen.front()->get_name();
  const std::vector<std::string> unknown = parser->remaining(true);
  std::string why = error.what();
  if (!unknown.empty()) {
    const bool flag = unknown.front().rfind('-', 0) == 0;
    why = name + (flag ? " has no flag " : chosen.empty() ? " has no command " : " takes no more words: ") + unknown.front();
  }
  return "error: " + why + "\n`" + name + " --help` shows what there is\n";
}

int run(int argc, char** argv) {
  CLI::App parser("Varda: edge AI for Kubernetes and KubeEdge. `varda up` starts everything on this machine.", "varda");
  parser.set_version_flag("--version", "varda " VARDA_VERSION);
  parser.require_subcommand(1);
  parser.failure_message(explain);
  Globals globals;
  Run chosen;
  std::function<Status()> before;
  Program program{parser, globals, chosen, before};
  add_up_commands(program);
  add_client_commands(program);
  add_doctor_command(program);
  add_model_commands(program);
  add_dataset_commands(program);
  add_artifact_commands(program);
  add_backup_commands(program);
  add_server_commands(program);
  add_operator_command(program);
  add_gateway_command(program);
  add_agent_commands(program);
  add_join_token_command(program);
  add_token_command(program);
  try {
    parser.parse(argc, argv);
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
  // A stop that the user asked for is how watching ends, not a failure.
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
