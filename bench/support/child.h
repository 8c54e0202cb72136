// Processes under test: our API server, and nginx as the reference.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "os/process.h"
#include "support/wire.h"

namespace varda::bench {

/// A temporary directory, removed by the destructor. It is on the build's disk, since syncs in a
/// /tmp in memory would be free.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The destructor ends the process.
class Child {
 public:
  Child() = default;
  Child(std::string program, std::vector<std::string> arguments, const std::filesystem::path& log);
  ~Child() { stop(); }
  Child(Child&&) = default;
  Child& operator=(Child&&) = delete;

  void stop();
  /// Processor time, user and kernel, of all threads.
  double cpu_seconds() const;
  double rss_bytes() const;
  const std::filesystem::path& log() const { return log_; }
  /// Waits for the text in the log and returns the text after it, up to a blank.
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

/// The server of `varda apiserver`, over TLS. That command has no plain HTTP, so for kPlain this
/// program builds the server from the same libraries. `sync`: the sync time of a slow_disk().
class ApiServer {
 public:
  ApiServer(const std::filesystem::path& data_dir, Security security,
            std::chrono::microseconds sync = {});
  const Endpoint& endpoint() const { return endpoint_; }
  const Child& process() const { return child_; }
  Child& process() { return child_; }

 private:
  Endpoint endpoint_;
  Child child_;
};
/// Main function of ApiServer's process, until SIGTERM. The process is this program with the
/// arguments "serve-plain DIR MICROSECONDS" or "serve-tls DIR MICROSECONDS", with the time per
/// sync.
int serve(const std::filesystem::path& data_dir, Security security, std::chrono::microseconds sync);

/// Debian's nginx with one worker. It answers every path below / with a file's bytes, and /memory
/// with the same bytes from its configuration. With TLS it uses the API server's certificate, so
/// that both have equal costs.
class Nginx {
 public:
  static bool installed();
  Nginx(const std::filesystem::path& dir, const std::string& body, Security security,
        const std::filesystem::path& pki);
  const Endpoint& endpoint() const { return endpoint_; }
  const Child& process() const { return child_; }

 private:
  Endpoint endpoint_;
  Child child_;
};

}  // namespace varda::bench
