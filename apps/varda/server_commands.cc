// apiserver: runs the embedded API server alone.
#include <memory>

#include "apiserver/standalone.h"
#include "command.h"
#include "datadir/data_directory.h"
#include "limit_flags.h"

namespace varda::app {
namespace {

struct ServerFlags {
  std::string data_dir, listen = "127.0.0.1:6443";
  ApiLimits limits;
  AuditFlags audit;
};

}  // namespace

void add_server_commands(Program program) {
  Globals& globals = program.globals;
  Run& chosen = program.chosen;

  const auto server = std::make_shared<ServerFlags>();
  CLI::App* apiserver = program.daemon("apiserver", "run the embedded API server alone");
  apiserver->add_option("--data-dir", server->data_dir, "directory for all data")->required();
  apiserver->add_option("--listen", server->listen, "address and port; port 0 takes a free one")
      ->default_str("127.0.0.1:6443");
  add_audit_flags(*apiserver, server->audit);
  add_limit_flags(*apiserver, server->limits);
  apiserver->callback([&chosen, &globals, server] {
    chosen = [&globals, server](const Context& ctx) -> Status {
      TRY_VOID(set_up_logs(globals, log::Level::kInfo));
      TRY_VOID(os::real_file_system().make_directories(server->data_dir));
      TRY_VOID(datadir::prepare_data_directory(server->data_dir));
      TRY(const auto audit, audit_options(server->audit));
      return apiserver::run_standalone(ctx, {.data_dir = server->data_dir,
                                             .listen = server->listen,
                                             .limits = server->limits.api,
                                             .store = server->limits.store,
                                             .http = server->limits.http,
                                             .audit = audit,
                                             .ready = {}});
    };
  });
}

}  // namespace varda::app
