// Confinement: the kernel (Landlock) limits the files that this process can open. It needs no
// privilege and cannot be undone.
#pragma once

#include <vector>

#include "base/result.h"
#include "os/file_system.h"

namespace varda::os {

/// Paths include everything below. Missing paths are ignored; links are resolved once, at the call.
struct ReachableFiles {
  std::vector<Path> read;  // files and directories
  std::vector<Path>
      read_write;  // existing files may be written too; nothing is created, removed or renamed
  std::vector<Path> own;  // directories: files and directories may also be created, renamed in
                          // their directory, and removed
};

/// Limits this thread, its later threads and all children to these files: other opens fail with
/// "Permission denied". Open files stay usable. Call before other threads start, since existing
/// threads are not confined. A child that confines itself again may open only what both calls
/// allow. Other processes cannot be inspected (ptrace, /proc/PID/environ, mem, fd). For root, this
/// requires dropping the capabilities CAP_PERFMON, CAP_SYS_PTRACE and CAP_SYS_ADMIN. kUnsupported:
/// the kernel has no Landlock (Linux 5.13) or started without it; nothing is confined then.
/// https://docs.kernel.org/userspace-api/landlock.html
Status confine_files(const ReachableFiles& files);

}  // namespace varda::os
