// Reads /proc/PID/stat.
#pragma once

#include <cstdint>
#include <optional>
#include <sys/types.h>

namespace varda::os::internal {

struct ProcStat {
  // The process is a zombie. A process also looks like a zombie if only its first thread ended;
  // such a process has no exit code yet.
  bool ended = false;
  std::uint64_t start_ticks = 0;
};

/// Includes zombies; nullopt if the process does not exist.
std::optional<ProcStat> read_proc_stat(pid_t pid);

}  // namespace varda::os::internal
