// Processes: start, watch, signal, recognise again after a restart.
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

/// Names one process for good: pids are reused, a pid with its start time is not.
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat
  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

/// The running process of that pid, or nothing (also for zombies).
std::optional<ProcessId> find_process(pid_t pid);
inline bool alive(const ProcessId& id) { return find_process(id.pid) == id; }
/// Signals it, if it is still that process. `group`: its whole process group.
Status signal_process(const ProcessId& id, int signal, bool group);
/// Waits for its end, also when it is no child of ours (pidfd). kTimeout, kCancelled from the context.
Status wait_for_exit(const Context& ctx, const ProcessId& id);

struct Mount {
  Path source;         // on this machine
  std::string target;  // absolute path as the child sees it; made inside its private root if missing
  bool read_only = false;
};

struct ProcessOptions {
  std::string program;                             // absolute path
  std::vector<std::string> arguments;              // without argv[0]
  std::map<std::string, std::string> environment;  // all of it: nothing is inherited
  Path working_directory;                          // empty: "/"
  Path standard_output;                            // stdout and stderr append here; empty: /dev/null
  int output_descriptor = -1;                      // if set, instead of standard_output: an open file of the caller
  // Any of these three makes a private root. It needs namespaces: kUnsupported where the kernel refuses them.
  std::vector<Mount> mounts;
  std::vector<Path> hidden;     // directories and files that look empty, but for mounts below them; ignored where missing
  bool read_only_root = false;  // only mounts that are not read-only can be written, /dev and /proc aside
  // kForbidden: the caller can neither become the user nor keep an ambient capability.
  std::optional<User> user;                     // nothing: the caller's
  std::optional<Rights> rights;                 // nothing: the caller's
  std::map<std::string, std::uint64_t> limits;  // "nofile", "core", "as", "nproc": setrlimit
  bool new_group = true;                        // leader of a group of its own, so that it can be killed with its children
  bool die_with_parent = false;                 // SIGKILL when the parent's starting thread ends
};

struct ExitStatus {
  int code = 0;    // exit code; 128 + signal if killed
  int signal = 0;  // 0: it exited by itself
};

/// Runs processes. Thread-safe.
class ProcessRunner {
 public:
  virtual ~ProcessRunner() = default;
  /// Starts it with no-new-privileges and every descriptor but 0-2 closed. The error of a failed exec is returned here.
  virtual Result<ProcessId> start(const ProcessOptions& options) = 0;
  /// The status of a child of ours that has ended (reaps it), or nothing while it runs. For a process that is not our child:
  /// code -1 once it is gone.
  virtual Result<std::optional<ExitStatus>> poll(const ProcessId& id) = 0;
};

ProcessRunner& real_processes();

/// Tells when processes end, children or not, without asking them again and again: one thread for all of them. Thread-safe.
class ExitWatch {
 public:
  /// `ended` is called once for each process, from the watch's thread or from add(). Cheap; must not call the watch.
  static Result<std::unique_ptr<ExitWatch>> create(std::function<void(const ProcessId&)> ended);
  virtual ~ExitWatch() = default;
  virtual void add(const ProcessId& id) = 0;
};

/// Path of the running program.
Path self_path();

/// SIGINT, SIGTERM, and SIGHUP unless ignored, become a stop request; call before threads start. SIGPIPE, SIGXFSZ are ignored.
std::stop_token stop_on_signals();

}  // namespace varda::os
