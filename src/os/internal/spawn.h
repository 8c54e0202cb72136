// The two halves of starting a process: a plan made beforehand, where anything may be called, and the child's part between fork
// and exec, where only async-signal-safe calls are allowed because other threads of the parent may hold any lock.
#pragma once

#include <linux/filter.h>
#include <string>
#include <sys/resource.h>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "base/result.h"
#include "os/process.h"

namespace varda::os::internal {

/// One step of building the private root. Paths are below the new root (or below the old one for `source`).
struct RootStep {
  enum class Kind { kDirectory, kFile, kSymlink, kBind, kHide };
  Kind kind = Kind::kDirectory;
  std::string source;        // kBind: absolute path on this machine; kSymlink: what it points to
  std::string target;        // absolute path as the child sees it
  bool read_only = false;    // kBind
  bool optional = false;     // kBind: a failure is passed over (a directory of the machine that may not be bound)
  bool make_target = false;  // kBind: the target lies in another mount of the child and is made there
  bool directory = true;     // kBind with make_target: a directory or a file
  // kHide: an empty directory over `target`, sealed against writes when all steps are done
};

/// Everything the child needs, ready to use without allocating.
struct SpawnPlan {
  std::string program;
  std::vector<char*> argv, envp;  // point into `strings`
  std::vector<std::string> strings;
  std::string working_directory;
  int output = -1;  // descriptor for stdout and stderr; -1: /dev/null
  bool new_group = true;
  bool die_with_parent = false;
  pid_t parent = 0;
  std::vector<std::pair<int, rlimit>> limits;
  std::vector<RootStep> root;  // empty: no namespaces
  std::string uid_map, gid_map;
  bool ordinary = false;     // the caller cannot become another user
  bool switch_user = false;  // the caller becomes `user`
  bool show_user = false;    // a user namespace shows `user`
  User user;
  bool limit_rights = false;  // to `rights`
  Rights rights;
  std::vector<sock_filter> filter;  // empty: every system call
  int report = -1;                  // close-on-exec pipe: a Failure is written there if anything fails before exec
};

/// Where in the child it failed. Sent through the pipe as it lies in memory.
enum class Stage : int { kGroup, kNamespace, kPrivateRoot, kBind, kLimits, kOutput, kDirectory, kUser, kPrivileges, kExec };
struct Failure {
  Stage stage = Stage::kExec;
  int number = 0;      // errno
  int root_step = -1;  // kBind: which
};

/// Empty: no private root is asked for. kInvalid: a mount makes no sense. kUnsupported: a target that cannot be made.
Result<std::vector<RootStep>> plan_root(const ProcessOptions& options);

/// A BPF program for seccomp(2): what Calls::kFiltered promises.
std::vector<sock_filter> call_filter();

/// Those that this process may use. Safe between fork and exec.
Capabilities own_capabilities();

/// Runs in the child. Never returns.
[[noreturn]] void run_child(const SpawnPlan& plan);

}  // namespace varda::os::internal
