// Broker: a second process that opens files and looks up names for a confined model server.
//
// Landlock rules hold for the files that exist when the server starts. A file that replaces one of
// them is out of reach: a renewed token, or /etc/resolv.conf after a change of the network. A rule
// for the directory would open everything beside the file to models. The broker stays unconfined,
// holds no model, and serves only the requests below.
#pragma once

#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/result.h"
#include "net/client.h"
#include "os/file_system.h"

namespace varda::serve {

/// Thread-safe.
class Broker {
 public:
  /// Forks: call before other threads start and before confine_files(). read() opens only `files`.
  /// kUnavailable: the system allows no further process.
  static Result<std::unique_ptr<Broker>> start(std::vector<os::Path> files);
  /// Ends the process. It also ends with the server.
  ~Broker();
  Broker(const Broker&) = delete;

  /// Reads a file, through links. kForbidden: not one of the files. kUnavailable: the broker ended.
  Result<std::string> read(const os::Path& file) const;
  /// Looks up a host name as the files of /etc say now. Blocks, up to 30 s if no name server
  /// answers.
  net::HostAddresses look_up(const std::string& host) const;
  /// Makes a child of the server the first victim of the OOM killer. kForbidden: another process.
  Status sacrifice(pid_t child) const;

 private:
  Broker(int socket, pid_t process) : socket_(socket), process_(process) {}
  Result<std::string> query(const std::string& request) const;

  const int socket_;
  const pid_t process_;
};

}  // namespace varda::serve
