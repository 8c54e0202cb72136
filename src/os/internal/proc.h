// What /proc/PID/stat says of a process.
#pragma once

#include <cstdint>
#include <optional>
#include <sys/types.h>

namespace varda::os::internal {

struct ProcStat {
  // The process is a zombie. A first thread that ends while others still run looks like one too, but that process has no
  // exit code yet.
  bool ended = false;
  std::uint64_t start_ticks = 0;
};

/// Also of zombies; nothing if there is no such process.
std::optional<ProcStat> read_proc_stat(pid_t pid);

}  // namespace varda::os::internal
