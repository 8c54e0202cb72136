// Starting a process has two halves. The plan is made before the fork, where any call is allowed.
// The child, between fork and exec, makes only async-signal-safe calls, because other threads of
// the parent may hold locks.
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

/// One step of building the private root. Paths are below the new root; `source` is below the old
/// one.
struct RootStep {
  enum class Kind { kDirectory, kFile, kSymlink, kBind, kHide };
  Kind kind = Kind::kDirectory;
  std::string source;      // kBind: absolute path on this machine; kSymlink: the link target
  std::string target;      // absolute path in the child
  bool read_only = false;  // kBind
  bool optional = false;   // kBind: failures are ignored (a machine directory that cannot be bound)
  bool make_target = false;  // kBind: creates the target inside another mount of the child
  bool directory = true;     // kBind with make_target: a directory or a file
  // kHide: an empty directory over `target`, made read-only after all steps
};

/// All data of the child, usable without allocation.
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
  bool ordinary = false;     // the caller may not become another user
  bool switch_user = false;  // the caller becomes `user`
  bool show_user = false;    // a user namespace maps the caller to `user`
  User user;
  bool limit_rights = false;  // apply `rights`
  Rights rights;
  std::vector<sock_filter> filter;  // empty: no filter
  int report = -1;  // close-on-exec pipe; receives a Failure if anything fails before exec
};

/// The failed step in the child. Sent through the pipe as raw bytes.
enum class Stage : int {
  kGroup,
  kNamespace,
  kPrivateRoot,
  kBind,
  kLimits,
  kOutput,
  kDirectory,
  kUser,
  kPrivileges,
  kExec
};
struct Failure {
  Stage stage = Stage::kExec;
  int number = 0;      // errno
  int root_step = -1;  // kBind: index of the step
};

/// The steps; empty without a private root. kInvalid: an impossible mount. kUnsupported: a target
/// that cannot be created.
Result<std::vector<RootStep>> plan_root(const ProcessOptions& options);

/// A BPF program for seccomp(2) that implements Calls::kFiltered.
std::vector<sock_filter> call_filter();

/// Permitted capabilities of this process. Safe between fork and exec.
Capabilities own_capabilities();

/// Runs in the child. Never returns.
[[noreturn]] void run_child(const SpawnPlan& plan);

}  // namespace varda::os::internal
