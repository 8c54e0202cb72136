// Processes: start, watch, signal, identify after a restart.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/context.h"
#include "base/result.h"
#include "os/file_system.h"
#include "os/privileges.h"

namespace varda::os {

/// Identifies a process uniquely: pids are reused, but not with the same start time.
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat
  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

/// The running process with that pid; nullopt also for zombies.
std::optional<ProcessId> find_process(pid_t pid);
inline bool alive(const ProcessId& id) { return find_process(id.pid) == id; }
/// Signals the process if it still exists. `group`: the whole process group.
Status signal_process(const ProcessId& id, int signal, bool group);
/// Waits until the process ends, even if it is not a child (pidfd). kTimeout, kCancelled: from the
/// context.
Status wait_for_exit(const Context& ctx, const ProcessId& id);

struct Mount {
  Path source;         // on this machine
  std::string target;  // absolute path in the child; created in the private root if missing
  bool read_only = false;
};

struct ProcessOptions {
  std::string program;                             // absolute path
  std::vector<std::string> arguments;              // without argv[0]
  std::map<std::string, std::string> environment;  // complete; nothing is inherited
  Path working_directory;                          // empty: "/"
  Path standard_output;        // stdout and stderr append here; empty: /dev/null
  int output_descriptor = -1;  // if set, used instead of standard_output; owned by the caller
  // Each of these three creates a private root. This needs namespaces; kUnsupported if the kernel
  // refuses them.
  std::vector<Mount> mounts;
  std::vector<Path> hidden;     // look empty, except for mounts below; missing paths are ignored
  bool read_only_root = false;  // only read-write mounts, /dev and /proc can be written
  // kForbidden: the caller cannot become the user or cannot keep an ambient capability.
  std::optional<User> user;                     // nullopt: the caller's
  std::optional<Rights> rights;                 // nullopt: the caller's
  std::map<std::string, std::uint64_t> limits;  // "nofile", "core", "as", "nproc": setrlimit
  bool new_group = true;                        // leads a new group, which can be killed as a whole
  bool die_with_parent = false;                 // SIGKILL when the parent's starting thread ends
};

struct ExitStatus {
  int code = 0;    // exit code; 128 + signal if killed
  int signal = 0;  // 0: not killed by a signal
};

/// Runs processes. Thread-safe.
class ProcessRunner {
 public:
  virtual ~ProcessRunner() = default;
  /// Starts with no-new-privileges and all descriptors except 0-2 closed. Returns the error of a
  /// failed exec.
  virtual Result<ProcessId> start(const ProcessOptions& options) = 0;
  /// Reaps an ended child and returns its status; nullopt while it runs. For other processes: code
  /// -1 after the end.
  virtual Result<std::optional<ExitStatus>> poll(const ProcessId& id) = 0;
};

ProcessRunner& real_processes();

/// Reports the end of processes, children or not, with one thread and without polling. Thread-safe.
class ExitWatch {
 public:
  /// Calls `ended` once per process, from the watch's thread or from add(). It must be cheap and
  /// not call the watch.
  static Result<std::unique_ptr<ExitWatch>> create(std::function<void(const ProcessId&)> ended);
  virtual ~ExitWatch() = default;
  virtual void add(const ProcessId& id) = 0;
};

/// Path of the running program.
Path self_path();

/// Turns SIGINT, SIGTERM and (unless ignored) SIGHUP into a stop request. Call before threads
/// start. Ignores SIGPIPE and SIGXFSZ.
std::stop_token stop_on_signals();
/// The signal that stopped this program, or 0. For exit codes: a shell reports 128 + signal.
int stopping_signal();

}  // namespace varda::os
