// Supervisor: keeps one child process running. It starts the child, restarts it when it ends, and
// adopts a running child of an earlier supervisor.
#pragma once

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/context.h"
#include "base/mutex.h"
#include "os/process.h"

namespace varda::datadir {

/// Pauses before restarts. They double until a child has run longer than kSettledAfter. Not
/// thread-safe.
class RestartPause {
 public:
  static constexpr std::chrono::seconds kSettledAfter{10};

  RestartPause(std::chrono::milliseconds min, std::chrono::milliseconds max)
      : min_(min), max_(max), next_(std::min(min, max)) {}
  /// The pause after a child that ran for `ran`; zero: the start failed.
  std::chrono::milliseconds after(Duration ran);

 private:
  const std::chrono::milliseconds min_, max_;
  std::chrono::milliseconds next_;
};

/// Owns a thread. Thread-safe.
class Supervisor {
 public:
  struct Options {
    std::string name;  // in logs
    os::ProcessOptions process;
    std::filesystem::path record;  // pid and start time of the running child, as JSON
    std::filesystem::path data;    // --data-dir of the child; only one child may use it
    // Identifies the way the child is started. A running child with another fingerprint is
    // replaced.
    std::string fingerprint;
    std::chrono::milliseconds backoff_min{100}, backoff_max{5000};
  };
  explicit Supervisor(Options options);
  /// Leaves the child running if stop() was not called.
  ~Supervisor();

  void start();
  /// Sends SIGTERM, waits up to `grace`, then sends SIGKILL. The child is not restarted.
  void stop(std::chrono::milliseconds grace);

 private:
  void run(const std::stop_token& stop);
  std::optional<os::ProcessId> adopt();

  const Options options_;
  Mutex mutex_;
  os::ProcessId child_ GUARDED_BY(mutex_);
  std::jthread thread_;
};

/// Finds running agents of a node's data directory. An agent may lack a record if its parent was
/// killed just after the start.
std::vector<os::ProcessId> agents_of(const std::filesystem::path& data_directory);
/// Sends SIGTERM to all, waits up to `grace` for all together, then sends SIGKILL.
void end_processes(const std::vector<os::ProcessId>& processes, std::chrono::milliseconds grace);

}  // namespace varda::datadir
