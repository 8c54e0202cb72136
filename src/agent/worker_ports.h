// WorkerPorts: where workers reach their agent: a Unix socket, and a port of this machine if one is asked for.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "net/server.h"
#include "os/file_system.h"

namespace varda::agent {

class WorkerPorts {
 public:
  struct Options {
    // 0660; "": none. A directory for it is made, 0750, if there is none: who is given the directory finds the socket of the next
    // agent too, who is given the socket itself does not, for each start makes it anew.
    os::Path socket;
    std::string listen;                           // ADDRESS:PORT; "": none
    os::Path url_file;                            // holds http://ADDRESS:PORT while there is such a port
    std::chrono::milliseconds silence_max{5000};  // to the end of a request's header; then its connection is closed
  };
  /// Serves from now on, one request a connection. `handler` outlives it. Errors are those of `listen`, kUnavailable: the address
  /// is in use, kInvalid: it is none. A socket that cannot be had, because the path is too long or somebody lives there, is logged
  /// and left out: models are served without it. One that a crash left behind is replaced.
  static Result<std::unique_ptr<WorkerPorts>> open(const Options& options, const net::Handler& handler, os::FileSystem& fs);
  ~WorkerPorts();

  std::string url() const { return port_ ? "http://" + port_->address() : ""; }

 private:
  WorkerPorts() = default;
  std::unique_ptr<net::Server> socket_, port_;
};

}  // namespace varda::agent
