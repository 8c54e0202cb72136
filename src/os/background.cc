#include "os/background.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace varda::os {

void lower_thread_priority() {
  // On Linux a "process" of these calls is a thread.
  const auto thread = static_cast<id_t>(::syscall(SYS_gettid));
  // Never raises the priority, which root could do here.
  constexpr int kNiceness = 15;
  if (::getpriority(PRIO_PROCESS, thread) < kNiceness)
    (void)::setpriority(PRIO_PROCESS, thread, kNiceness);
  // linux/ioprio.h: best effort, the last of eight levels. The class "idle" would wait forever on a
  // busy disk.
  constexpr int kPriorityOfProcess = 1, kClassBestEffort = 2, kClassShift = 13, kLast = 7;
  (void)::syscall(SYS_ioprio_set, kPriorityOfProcess, thread,
                  (kClassBestEffort << kClassShift) | kLast);
}

}  // namespace varda::os
