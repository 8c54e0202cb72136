// How a subcommand gets into the program: it adds its flags to the parser and says what to run when it was chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <string>

#include "base/context.h"
#include "base/log.h"
#include "base/result.h"
#include "kube/config.h"

namespace varda::app {

/// Flags every subcommand has.
struct Globals {
  std::string kubeconfig;
  std::string config;  // read by parse_with_config()
  std::string log_format = "text";
  std::string log_level;  // "" takes the subcommand's own default
};

/// The function that main() runs after parsing. Blocks; the context stops on SIGINT, SIGTERM and SIGHUP.
using Run = std::function<Status(const Context&)>;

struct Program {
  CLI::App& parser;
  Globals& globals;
  Run& chosen;
  std::function<Status()>& before;  // runs first, while there is one thread only (going to the background)

  /// A subcommand below `parent` that runs until it is stopped: with --config, --log-format, --log-level and --help-all of its own.
  CLI::App* daemon(CLI::App& parent, const std::string& name, const std::string& what);
  CLI::App* daemon(const std::string& name, const std::string& what) { return daemon(parser, name, what); }
};

/// The text of --kubeconfig in every command that talks to a server.
inline constexpr const char* kKubeconfigHelp =
    "kubeconfig file with the server and your credentials; default: $KUBECONFIG, then that of `varda up`";
/// --help of a daemon shows the flags without a group only; --help-all shows all groups.
inline constexpr const char* kLogGroup = "Logs";
inline constexpr const char* kContainerGroup = "Containers";

/// $XDG_DATA_HOME/varda, or ~/.local/share/varda. kInvalid: the environment names neither.
Result<std::filesystem::path> default_data_dir();
/// The directory that --data-dir names, absolute; the default directory if `flag` is empty.
Result<std::filesystem::path> data_dir_of(const std::string& flag);
/// The administrator's kubeconfig of `varda up` in the default place; empty where there is no such place.
std::filesystem::path default_kubeconfig();
/// kNotFound: no `varda up` ran with this data directory.
Error no_data_of_up(const std::filesystem::path& data_dir);
/// The server that client subcommands talk to: --kubeconfig, $KUBECONFIG, then that of `varda up`. An error says what to do.
Result<kube::Config> find_server(const Globals& globals);
Status set_up_logs(const Globals& globals, log::Level otherwise);

void add_client_commands(Program program);     // apply get describe delete logs events wait patch scale api-resources
void add_doctor_command(Program program);      // doctor
void add_model_commands(Program program);      // pack fetch predict models
void add_dataset_commands(Program program);    // dataset
void add_artifact_commands(Program program);   // artifacts
void add_up_commands(Program program);         // up down
void add_backup_commands(Program program);     // backup restore
void add_server_commands(Program program);     // apiserver
void add_operator_command(Program program);    // operator
void add_gateway_command(Program program);     // gateway
void add_agent_commands(Program program);      // agent
void add_join_token_command(Program program);  // join-token
void add_token_command(Program program);       // token
void add_node_commands(Program program);       // node remove
void add_about_commands(Program program);      // help version completion

/// Every command of `varda`.
void add_all_commands(Program program);

}  // namespace varda::app
