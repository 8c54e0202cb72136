// Processes under measurement: our API server, and nginx as its reference.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "os/process.h"
#include "support/wire.h"

namespace varda::bench {

/// A directory that goes with it, on the disk the program was built on (a /tmp in memory would make every sync free).
class Scratch {
 public:
  Scratch();
  ~Scratch();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Ends its process.
class Child {
 public:
  Child() = default;
  Child(std::string program, std::vector<std::string> arguments, const std::filesystem::path& log);
  ~Child() { stop(); }
  Child(Child&&) = default;
  Child& operator=(Child&&) = delete;

  void stop();
  /// On processors, user and kernel, of all its threads, and of its children where `children` are its workers.
  double cpu_seconds() const;
  double rss_bytes() const;
  const std::filesystem::path& log() const { return log_; }
  /// Waits for that text in the log and returns what follows up to a blank.
  std::string wait_for(const std::string& text) const;

 private:
  os::ProcessId process_;
  std::filesystem::path log_;
};

struct Endpoint {
  int port = 0;
  Security security = Security::kPlain;
  std::string token;
};

/// What `varda apiserver` runs, over TLS; or, since that speaks nothing else, the same rooms composed by this program for plain
/// HTTP. `sync`: its disk is one of slow_disk().
class ApiServer {
 public:
  ApiServer(const std::filesystem::path& data_dir, Security security, std::chrono::microseconds sync = {});
  const Endpoint& endpoint() const { return endpoint_; }
  const Child& process() const { return child_; }
  Child& process() { return child_; }

 private:
  Endpoint endpoint_;
  Child child_;
};
/// The process behind ApiServer: this program with the arguments "serve-plain DIR MICROSECONDS" or "serve-tls DIR MICROSECONDS",
/// those of a sync. Until SIGTERM comes.
int serve(const std::filesystem::path& data_dir, Security security, std::chrono::microseconds sync);

/// One worker of Debian's nginx that answers every path below / with a file's bytes, and /memory with the same from its
/// configuration. With TLS it has the API server's certificate, so that both sign and encrypt alike.
class Nginx {
 public:
  static bool installed();
  Nginx(const std::filesystem::path& dir, const std::string& body, Security security, const std::filesystem::path& pki);
  const Endpoint& endpoint() const { return endpoint_; }
  const Child& process() const { return child_; }

 private:
  Endpoint endpoint_;
  Child child_;
};

}  // namespace varda::bench
