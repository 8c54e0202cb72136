#include "agent/worker_ports.h"

#include "base/log.h"

namespace varda::agent {
namespace {

constexpr std::chrono::milliseconds kGrace{500};

net::Server::Options server_options(std::string listen) {
  net::Server::Options options;
  options.listen = std::move(listen);
  options.connections_max = 192;  // 64 workers, each with a wait and some requests
  options.header_bytes_max = 8 << 10;
  options.body_bytes_max = 64 << 10;  // more than any request may have, so that the refusal is ours
  return options;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("localhost:") || address.starts_with("[::1]:");
}

}  // namespace

Result<std::unique_ptr<WorkerPorts>> WorkerPorts::open(const Options& options, const net::Handler& handler, os::FileSystem& fs) {
  std::unique_ptr<WorkerPorts> out(new WorkerPorts());  // NOLINT: private constructor
  if (!options.socket.empty()) {
    auto server = net::Server::create(server_options("unix:" + options.socket.string()), handler);
    Status opened = server.ok() ? fs.set_mode(options.socket, 0660) : Status(server.error());
    if (opened.ok()) {
      out->socket_ = std::move(*server);
    } else {
      log::error("workers find no socket here", {{"error", opened.error()}});
    }
  }
  if (options.listen.empty()) {
    TRY_VOID(fs.remove(options.url_file));
    return out;
  }
  if (options.listen.starts_with("unix:"))
    return Error(Code::kInvalid, "--worker-listen " + options.listen + ": expected ADDRESS:PORT");
  TRY(out->port_, net::Server::create(server_options(options.listen), handler).context("--worker-listen"));
  if (!is_loopback(out->port_->address()))
    log::warn("tokens and reports of workers go over this address in the clear", {{"address", out->port_->address()}});
  TRY_VOID(os::write_file_atomically(fs, options.url_file, out->url()));
  return out;
}

WorkerPorts::~WorkerPorts() {
  if (socket_) socket_->stop(kGrace);
  if (port_) port_->stop(kGrace);
}

}  // namespace varda::agent
