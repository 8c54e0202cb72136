// token: lists and rotates the API server's bearer tokens in the data directory of `varda up`.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include "apiserver/bootstrap.h"
#include "base/text.h"
#include "cli/printer.h"
#include "command.h"
#include "datadir/up_state.h"
#include "duration.h"
#include "meta/object.h"
#include "os/file_system.h"
#include "os/new_file.h"

namespace varda::app {
namespace {

struct TokenFlags {
  std::string data_dir, rotate, ttl, output;
  bool list = false;
};

constexpr std::chrono::hours kTokenTtlMax{24 * 3650};

/// "90d", or a duration as in other flags.
Result<std::chrono::seconds> lifetime_of(const std::string& text) {
  const bool days = text.size() > 1 && text.back() == 'd' && text[text.size() - 2] >= '0' &&
                    text[text.size() - 2] <= '9';
  TRY(const auto time, parse_duration("--ttl", days ? text.substr(0, text.size() - 1) : text));
  const auto ttl = std::chrono::floor<std::chrono::seconds>(days ? time * 86400 : time);
  if (ttl < std::chrono::seconds(60) || ttl > kTokenTtlMax) {
    return Error(Code::kInvalid, "--ttl " + text + ": must be from 1m to 3650d");
  }
  return ttl;
}

Status list(const std::filesystem::path& data_dir) {
  TRY(const auto tokens, apiserver::list_tokens(os::real_file_system(), data_dir));
  const WallTime now = system_clock().wall();
  std::vector<std::vector<std::string>> rows = {{"USER", "GROUPS", "STATE", "EXPIRES"}};
  for (const apiserver::Token& token : tokens) {
    const std::string groups = join(token.identity.groups, ",");
    rows.push_back({token.identity.name, groups, token.expired(now) ? "expired" : "valid",
                    token.expires ? meta::format_time(*token.expires) : "never"});
  }
  std::fputs(cli::align(rows).c_str(), stdout);
  return {};
}

/// The kubeconfig that `varda up` writes for `user`; "": none.
std::filesystem::path kubeconfig_of(const std::filesystem::path& data_dir,
                                    const std::string& user) {
  constexpr std::string_view kNode = "system:node:";
  if (user == apiserver::kAdmin) return data_dir / "kubeconfig";
  if (user.starts_with(kNode))
    return datadir::node_directory(data_dir, user.substr(kNode.size())) / "agent.kubeconfig";
  return {};
}

/// The server runs as the owner of its files. If another user wrote them, the server could not read
/// the new tokens.
Status check_owner(const std::filesystem::path& data_dir) {
  struct stat info {};
  const std::filesystem::path file = data_dir / "tokens.json";
  if (::stat(file.c_str(), &info) != 0 || info.st_uid == ::geteuid()) return {};
  const std::string owner = datadir::user_name(info.st_uid);
  return Error(Code::kForbidden,
               file.string() + " belongs to " + owner + "; run this command as " + owner);
}

Status rotate(const std::filesystem::path& data_dir, const TokenFlags& flags) {
  TRY_VOID(check_owner(data_dir));
  auto& fs = os::real_file_system();
  std::optional<WallTime> expires;
  if (!flags.ttl.empty()) {
    TRY(const auto ttl, lifetime_of(flags.ttl));
    expires = std::chrono::floor<std::chrono::seconds>(system_clock().wall()) + ttl;
  }
  std::optional<os::NewFile> file;  // opened first: a token that cannot be saved is useless
  if (!flags.output.empty()) {
    TRY(os::NewFile created, os::NewFile::create(flags.output));
    file.emplace(std::move(created));
  }
  TRY(const apiserver::Token made,
      apiserver::rotate_token(fs, data_dir, flags.rotate, expires, system_rng()));
  const std::filesystem::path kubeconfig = kubeconfig_of(data_dir, flags.rotate);
  bool in_kubeconfig = false;
  if (!kubeconfig.empty()) {
    TRY(in_kubeconfig, apiserver::put_token(fs, kubeconfig, made.token));
  }
  if (file) {
    TRY_VOID(file->write(made.token + "\n"));
    TRY_VOID(file->keep());
  } else if (!in_kubeconfig) {
    std::fprintf(stdout, "%s\n", made.token.c_str());  // alone, for redirection to a file
  }
  std::fprintf(
      stderr, "user %s has a new token%s%s; the former token expires within a second%s%s\n",
      flags.rotate.c_str(), expires ? ", valid until " : "",
      expires ? meta::format_time(*expires).c_str() : "",
      in_kubeconfig ? "; the new token is in " : "", in_kubeconfig ? kubeconfig.c_str() : "");
  return {};
}

Status run_token(const TokenFlags& flags) {
  if (flags.list == !flags.rotate.empty())
    return Error(Code::kInvalid, "token needs one of --list and --rotate USER");
  if (flags.list && (!flags.ttl.empty() || !flags.output.empty()))
    return Error(Code::kInvalid, "--ttl and --output go with --rotate");
  TRY(const std::filesystem::path data_dir, data_dir_of(flags.data_dir));
  return flags.list ? list(data_dir) : rotate(data_dir, flags);
}

}  // namespace

void add_token_command(Program program) {
  const auto flags = std::make_shared<TokenFlags>();
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  CLI::App* command = program.parser.add_subcommand(
      "token",
      "list or rotate the bearer tokens of the API server of `varda up`, while it runs or not");
  command->add_flag("--list", flags->list, "list users with tokens and expiry times");
  command->add_option("--rotate", flags->rotate,
                      "USER: replace all tokens of the user with a new one");
  command->add_option("--ttl", flags->ttl,
                      "lifetime of the new token: 12h, 90d; default: unlimited");
  command->add_option("--output,-o", flags->output,
                      "write the new token to this new file, readable by its owner only; default: "
                      "the user's kubeconfig of `varda "
                      "up`, else standard output");
  command->add_option("--data-dir", flags->data_dir,
                      "data directory of `varda up`; default: $XDG_DATA_HOME/varda");
  command->callback([&chosen, &globals, flags] {
    chosen = [&globals, flags](const Context&) -> Status {
      TRY_VOID(set_up_logs(globals, log::Level::kWarn));
      return run_token(*flags);
    };
  });
}

}  // namespace varda::app
