// Confinement: the kernel (Landlock) limits the files that this process can open. It needs no privilege and cannot be undone.
#pragma once

#include <vector>

#include "base/result.h"
#include "os/file_system.h"

namespace varda::os {

/// Paths and all below them. Paths that do not exist are ignored; links are followed once, at the call.
struct ReachableFiles {
  std::vector<Path> read;        // files and directories
  std::vector<Path> read_write;  // existing files may be written too; nothing is created, removed or renamed
};

/// After this call this thread, the threads it starts and all children open no other files: "Permission denied". Files that are
/// open already stay usable. Call it before other threads start, which are not confined. A child that confines itself again opens
/// what both allow. Other processes cannot be inspected (ptrace, /proc/PID/environ, mem, fd): for root this needs the capabilities
/// CAP_PERFMON, CAP_SYS_PTRACE and CAP_SYS_ADMIN to go, so they are dropped.
/// kUnsupported: the kernel has no Landlock (Linux 5.13), or was started without it; nothing is confined then.
/// https://docs.kernel.org/userspace-api/landlock.html
Status confine_files(const ReachableFiles& files);

}  // namespace varda::os
