// Ports: the agent's endpoints for workers: a Unix socket, and optionally a TCP port of this
// machine.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "net/server.h"
#include "os/file_system.h"

namespace varda::agent::workers {

class Ports {
 public:
  struct Options {
    // Mode 0660; "": no socket. Its directory is created with mode 0750 if missing. Mount the
    // directory into workers: each start creates a new socket, so a mounted socket would become
    // stale.
    os::Path socket;
    std::string listen;  // ADDRESS:PORT; "": no port
    os::Path url_file;   // holds http://ADDRESS:PORT while the port is open
    std::function<net::Reception(const net::Request&)> receive;  // streams bodies; null: none
    std::chrono::milliseconds silence_max{5000};  // then closes connections without a header
  };
  /// Starts serving, one request per connection. `handler` outlives it. Errors concern `listen`.
  /// kUnavailable: the address is in use. kInvalid: not an address. A socket that cannot be opened
  /// (path too long, or in use) is logged and skipped, because model serving does not need it. A
  /// stale socket of a crashed process is replaced.
  static Result<std::unique_ptr<Ports>> open(const Options& options, const net::Handler& handler,
                                             os::FileSystem& fs);
  ~Ports();

  std::string url() const { return port_ ? "http://" + port_->address() : ""; }

 private:
  Ports() = default;
  std::unique_ptr<net::Server> socket_, port_;
};

}  // namespace varda::agent::workers
