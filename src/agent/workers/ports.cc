#include "agent/workers/ports.h"

#include <limits>

#include "base/log.h"

namespace varda::agent::workers {
namespace {

constexpr std::chrono::milliseconds kPortGrace{500};

/// Creates the directory with mode 0750, independent of the umask. An existing directory keeps its
/// mode.
Status make_directory(os::FileSystem& fs, const os::Path& path) {
  TRY(const auto existing, fs.stat(path));
  if (existing) return {};
  TRY_VOID(fs.make_directories(path, 0750));
  return fs.set_mode(path, 0750);
}

net::Server::Options server_options(std::string listen, const Ports::Options& ports) {
  net::Server::Options options;
  options.listen = std::move(listen);
  options.idle_timeout = options.header_timeout = ports.silence_max;
  options.write_timeout = std::chrono::seconds(10);
  options.body_bytes_per_second_min = 16 << 10;
  options.connections_max = 192;  // 64 workers, each with a waiting request and some others
  options.header_bytes_max = 8 << 10;
  constexpr std::size_t kBodyMax = 64 << 10;  // above Api's limits, so that Api refuses
  options.body_bytes_max = kBodyMax;
  if (ports.receive) {
    options.body_bytes_max = std::numeric_limits<std::size_t>::max();
    options.body_bytes_max_of = [](std::string_view, std::string_view) { return kBodyMax; };
    options.receive = ports.receive;
  }
  return options;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("localhost:") ||
         address.starts_with("[::1]:");
}

/// Connections close after each answer. Otherwise one worker could hold all connections with rare
/// requests. Reconnecting is cheap on one machine. A wait for an assignment is one request, and
/// each worker may have four.
Result<std::unique_ptr<net::Server>> serve(net::Server::Options options,
                                           const net::Handler& handler) {
  TRY(auto server, net::Server::create(std::move(options), handler));
  server->drain();  // closes each connection after its answer
  return server;
}

Result<std::unique_ptr<net::Server>> serve_at_socket(const Ports::Options& options,
                                                     const net::Handler& handler,
                                                     os::FileSystem& fs) {
  TRY_VOID(make_directory(fs, options.socket.parent_path()));
  TRY(auto server, serve(server_options("unix:" + options.socket.string(), options), handler));
  TRY_VOID(fs.set_mode(options.socket, 0660));
  return server;
}

}  // namespace

Result<std::unique_ptr<Ports>> Ports::open(const Options& options, const net::Handler& handler,
                                           os::FileSystem& fs) {
  std::unique_ptr<Ports> out(new Ports());  // NOLINT: private constructor
  if (!options.socket.empty()) {
    auto server = serve_at_socket(options, handler, fs);
    if (server.ok()) {
      out->socket_ = std::move(*server);
    } else {
      log::error("cannot open the socket for workers", {{"error", server.error()}});
    }
  }
  if (options.listen.empty()) {
    TRY_VOID(fs.remove(options.url_file));
    return out;
  }
  if (options.listen.starts_with("unix:"))
    return Error(Code::kInvalid, "--worker-listen " + options.listen + ": expected ADDRESS:PORT");
  TRY(out->port_,
      serve(server_options(options.listen, options), handler).context("--worker-listen"));
  if (!is_loopback(out->port_->address()))
    log::warn("worker tokens and reports are not encrypted on this address",
              {{"address", out->port_->address()}});
  TRY_VOID(make_directory(fs, options.url_file.parent_path()));
  TRY_VOID(os::remove_leftovers(fs, options.url_file.parent_path()));
  TRY_VOID(os::write_file_atomically(fs, options.url_file, out->url()));
  return out;
}

Ports::~Ports() {
  if (socket_) socket_->stop(kPortGrace);
  if (port_) port_->stop(kPortGrace);
}

}  // namespace varda::agent::workers
