// WorkerPorts: where workers reach their agent: a Unix socket, and a port of this machine if one is asked for.
#pragma once

#include <memory>
#include <string>

#include "net/server.h"
#include "os/file_system.h"

namespace varda::agent {

class WorkerPorts {
 public:
  struct Options {
    os::Path socket;     // 0660; "": none
    std::string listen;  // ADDRESS:PORT; "": none
    os::Path url_file;   // holds http://ADDRESS:PORT while there is such a port
  };
  /// Serves from now on. `handler` outlives it. Errors are those of `listen`, kUnavailable: the address is in use, kInvalid: it is
  /// none. A socket that cannot be had, because the path is too long or somebody lives there, is logged and left out: models are
  /// served without it. One that a crash left behind is replaced.
  static Result<std::unique_ptr<WorkerPorts>> open(const Options& options, const net::Handler& handler, os::FileSystem& fs);
  ~WorkerPorts();

  std::string url() const { return port_ ? "http://" + port_->address() : ""; }

 private:
  WorkerPorts() = default;
  std::unique_ptr<net::Server> socket_, port_;
};

}  // namespace varda::agent
