#include "file_server_command.h"

#include <cstdio>
#include <filesystem>
#include <memory>

#include "artifact/file_server.h"
#include "base/log.h"
#include "net/browser_guard.h"
#include "net/server.h"
#include "os/file_system.h"

namespace varda::app {
namespace {

struct FileServerFlags {
  std::string directory, listen = "127.0.0.1:8000";
  std::vector<std::string> cors_origins;
};

constexpr std::size_t kDiskThreads = 8;
constexpr std::chrono::seconds kFileServerDrain{5};

Status serve_files(const Context& ctx, const Globals& globals, const FileServerFlags& flags) {
  TRY_VOID(set_up_logs(globals, log::Level::kInfo));
  std::error_code error;
  const os::Path root = std::filesystem::canonical(flags.directory, error);
  if (error || !std::filesystem::is_directory(root, error))
    return Error(Code::kNotFound,
                 flags.directory + (error ? ": " + error.message() : " is not a directory"));

  net::HandlerPool pool({.threads = kDiskThreads, .queue_max = 1024});
  auto handler = pool.wrap([&root](const net::Request& request) {
    net::Response response = artifact::serve_file(os::real_file_system(), root, request);
    log::info("request", {{"peer", request.peer.address},
                          {"method", request.method},
                          {"target", request.target},
                          {"range", request.headers.find("Range").value_or("")},
                          {"status", response.status}});
    return response;
  });
  handler = net::guard_from_browsers({.listen = flags.listen, .cors_origins = flags.cors_origins},
                                     std::move(handler));
  TRY(const auto server, net::Server::create({.listen = flags.listen}, std::move(handler))
                             .context("--listen " + flags.listen));
  // With port 0 the caller reads the chosen port here.
  std::printf("serving %s at http://%s/\n", root.c_str(), server->address().c_str());
  std::fflush(stdout);
  while (ctx.sleep_for(std::chrono::hours(24)).ok()) {
  }
  server->drain();
  server->stop(kFileServerDrain);
  return {};
}

}  // namespace

void add_serve_command(CLI::App& artifacts, Program program) {
  Globals& globals = program.globals;
  Run& chosen = program.chosen;
  const auto flags = std::make_shared<FileServerFlags>();
  CLI::App* command = program.daemon(
      artifacts, "serve", "serve the files of a directory over HTTP, for nodes to download from");
  command
      ->add_option("directory", flags->directory,
                   "with the archives; links are followed as long as they stay inside")
      ->required();
  command
      ->add_option("--listen", flags->listen,
                   "address and port; port 0: a free one, which is printed")
      ->default_str(flags->listen);
  command
      ->add_option("--cors-origin", flags->cors_origins,
                   "origin whose web pages may read the files, \"*\" for all; default: none")
      ->allow_extra_args(false);
  command->callback([&chosen, &globals, flags] {
    chosen = [&globals, flags](const Context& ctx) { return serve_files(ctx, globals, *flags); };
  });
}

}  // namespace varda::app
