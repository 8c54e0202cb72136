// Priority of background work.
#pragma once

namespace varda::os {

/// From now on, the calling thread (only this one) yields processor and disk to other work.
/// Silently ignores refusals of the system.
void lower_thread_priority();

}  // namespace varda::os
