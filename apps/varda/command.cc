#include "command.h"

#include <cstdlib>

namespace varda::app {

CLI::App* Program::daemon(const std::string& name, const std::string& what) {
  CLI::App* command = parser.add_subcommand(name, what);
  command->set_config("--config", "", "read flags from a file: NAME=VALUE lines, the names of the flags without dashes");
  command->add_option("--log-format", globals.log_format, "text or json")->check(CLI::IsMember({"text", "json"}));
  command->add_option("--log-level", globals.log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  return command;
}

Result<std::filesystem::path> default_data_dir() {
  if (const char* xdg = std::getenv("XDG_DATA_HOME"); xdg && *xdg) return std::filesystem::path(xdg) / "varda";
  if (const char* home = std::getenv("HOME"); home && *home) return std::filesystem::path(home) / ".local/share/varda";
  return Error(Code::kInvalid, "neither $HOME nor $XDG_DATA_HOME is set: name a directory with --data-dir");
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

Status set_up_logs(const Globals& globals, log::Level otherwise) {
  if (!globals.log_level.empty()) {
    TRY(otherwise, log::parse_level(globals.log_level));
  }
  log::configure(globals.log_format == "json" ? log::Format::kJson : log::Format::kText, otherwise);
  return {};
}

}  // namespace varda::app
