// Work that can wait, on a machine that has more important things to do.
#pragma once

namespace varda::os {

/// The calling thread, and no other, gets the processor and the disk after those who want them more, from here on. What the system
/// refuses is left as it is.
void lower_thread_priority();

}  // namespace varda::os
