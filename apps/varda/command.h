// Subcommands: each one adds its flags to the parser and sets the function that main() runs.
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

/// Flags that several subcommands share.
struct Globals {
  std::string kubeconfig;
  std::string config;  // read by parse_with_config()
  std::string log_format = "text";
  std::string log_level;  // "" takes the subcommand's own default
};

/// The function that main() runs after parsing. Blocks. The context stops on SIGINT, SIGTERM and
/// SIGHUP.
using Run = std::function<Status(const Context&)>;

struct Program {
  CLI::App& parser;
  Globals& globals;
  Run& chosen;
  // Runs before `chosen`, while the process has one thread: fork() for the background is safe here.
  std::function<Status()>& before;

  /// Adds a subcommand that runs until a stop, with --config, --log-format, --log-level and
  /// --help-all.
  CLI::App* daemon(CLI::App& parent, const std::string& name, const std::string& what);
  CLI::App* daemon(const std::string& name, const std::string& what) {
    return daemon(parser, name, what);
  }
};

/// The text of --kubeconfig in every command that talks to a server.
inline constexpr const char* kKubeconfigHelp =
    "kubeconfig file with the server and your credentials; default: $KUBECONFIG, then that of "
    "`varda up`";
/// Groups of flags that only --help-all shows.
inline constexpr const char* kLogGroup = "Logs";
inline constexpr const char* kContainerGroup = "Containers";

/// $XDG_DATA_HOME/varda, or ~/.local/share/varda. kInvalid: the environment names neither.
Result<std::filesystem::path> default_data_dir();
/// The directory that --data-dir names, absolute. The default directory if `flag` is empty.
Result<std::filesystem::path> data_dir_of(const std::string& flag);
/// The administrator's kubeconfig in the default data directory of `varda up`; empty without a
/// default directory.
std::filesystem::path default_kubeconfig();
/// kNotFound: no `varda up` ran with this data directory.
Error no_data_directory(const std::filesystem::path& data_dir);
/// Finds the server of client subcommands: --kubeconfig, $KUBECONFIG, then the file of `varda up`.
/// The error names a remedy.
Result<kube::Config> find_server(const Globals& globals);
Status set_up_logs(const Globals& globals, log::Level otherwise);

void add_client_commands(Program program);     // apply, get, logs and the other verbs of room cli
void add_doctor_command(Program program);      // doctor
void add_model_commands(Program program);      // pack fetch predict models
void add_train_command(Program program);       // train
void add_sign_command(Program program);        // sign
void add_dataset_commands(Program program);    // dataset
void add_artifact_commands(Program program);   // artifacts
void add_samples_commands(Program program);    // samples
void add_up_commands(Program program);         // up down
void add_registry_command(Program program);    // registry
void add_push_commands(Program program);       // push pull
void add_backup_commands(Program program);     // backup restore
void add_server_commands(Program program);     // apiserver
void add_operator_command(Program program);    // operator
void add_gateway_command(Program program);     // gateway
void add_agent_commands(Program program);      // agent
void add_join_token_command(Program program);  // join-token
void add_token_command(Program program);       // token
void add_node_commands(Program program);       // node remove
void add_learning_commands(Program program);   // il
void add_about_commands(Program program);      // help version completion

/// Every command of `varda`.
void add_all_commands(Program program);

}  // namespace varda::app
