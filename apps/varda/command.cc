#include "command.h"

#include <cstdlib>

namespace varda::app {

CLI::App* Program::daemon(CLI::App& parent, const std::string& name, const std::string& what) {
  CLI::App* command = parent.add_subcommand(name, what);
  command->set_help_all_flag("--help-all", "print every flag");
  command
      ->add_option(
          "--config", globals.config,
          "file with further flags, one NAME = VALUE a line; the command line wins over it")
      ->configurable(false);
  command->add_option("--log-format", globals.log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->group(kLogGroup);
  command->add_option("--log-level", globals.log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->group(kLogGroup);
  return command;
}

void add_all_commands(Program program) {
  add_up_commands(program);
  add_client_commands(program);
  add_doctor_command(program);
  add_model_commands(program);
  add_train_command(program);
  add_sign_command(program);
  add_dataset_commands(program);
  add_artifact_commands(program);
  add_samples_commands(program);
  add_registry_command(program);
  add_push_commands(program);
  add_backup_commands(program);
  add_server_commands(program);
  add_operator_command(program);
  add_gateway_command(program);
  add_agent_commands(program);
  add_join_token_command(program);
  add_token_command(program);
  add_node_commands(program);
  add_learning_commands(program);
  add_about_commands(program);
}

Result<std::filesystem::path> default_data_dir() {
  if (const char* xdg = std::getenv("XDG_DATA_HOME"); xdg && *xdg)
    return std::filesystem::path(xdg) / "varda";
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::filesystem::path(home) / ".local/share/varda";
  return Error(Code::kInvalid,
               "neither $HOME nor $XDG_DATA_HOME is set: name a directory with --data-dir");
}

Result<std::filesystem::path> data_dir_of(const std::string& flag) {
  std::filesystem::path directory = flag;
  if (flag.empty()) {
    TRY(directory, default_data_dir());
  }
  return std::filesystem::absolute(directory).lexically_normal();
}

std::filesystem::path default_kubeconfig() {
  const auto directory = default_data_dir();
  return directory.ok() ? *directory / "kubeconfig" : std::filesystem::path();
}

Error no_data_directory(const std::filesystem::path& data_dir) {
  return Error(Code::kNotFound, data_dir.string() +
                                    " has no data of `varda up`; give --data-dir the directory "
                                    "that `varda up` was started with");
}

Status set_up_logs(const Globals& globals, log::Level otherwise) {
  if (!globals.log_level.empty()) {
    TRY(otherwise, log::parse_level(globals.log_level));
  }
  log::configure(globals.log_format == "json" ? log::Format::kJson : log::Format::kText, otherwise);
  return {};
}

}  // namespace varda::app
