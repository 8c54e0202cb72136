// Supervisor: keeps one child process running: starts it, starts it again when it ends, and takes over one that an earlier life of
// ours left running.
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

namespace varda::app {

/// Pauses before a child is started again: they double, until a child has run for a while. Not thread-safe.
class RestartPause {
 public:
  static constexpr std::chrono::seconds kSettledAfter{10};

  RestartPause(std::chrono::milliseconds min, std::chrono::milliseconds max) : min_(min), max_(max), next_(std::min(min, max)) {}
  /// The pause after a child that ran for `ran`; zero: it could not be started.
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
    std::filesystem::path data;    // --data-dir of the child: no two work on one
    std::string fingerprint;       // of how it is started: a running child with another one is replaced, not taken over
    std::chrono::milliseconds backoff_min{100}, backoff_max{5000};
  };
  explicit Supervisor(Options options);
  /// Leaves the child running if stop() was not called.
  ~Supervisor();

  void start();
  /// SIGTERM, up to `grace` for it to end, then SIGKILL. Does not start it again.
  void stop(std::chrono::milliseconds grace);

 private:
  void run(const std::stop_token& stop);
  std::optional<os::ProcessId> adopt();

  const Options options_;
  Mutex mutex_;
  os::ProcessId child_ GUARDED_BY(mutex_);
  std::jthread thread_;
};

/// Running agents of a node's data directory, in a record or not: one that was started just before its parent was killed is in
/// none.
std::vector<os::ProcessId> agents_of(const std::filesystem::path& data_directory);
/// SIGTERM, up to `grace` for each to end, then SIGKILL.
void end_processes(const std::vector<os::ProcessId>& processes, std::chrono::milliseconds grace);

}  // namespace varda::app
