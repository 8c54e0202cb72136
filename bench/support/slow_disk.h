// A disk with a fixed sync time, for comparable results on any machine.
#pragma once

#include <chrono>

namespace varda::bench {

/// From now on each sync of this process's SQLite files sleeps for `sync` instead of using the
/// disk. Other users of the disk then do not matter. Zero: real syncs. Call before the first
/// database is opened; later calls change the time.
void slow_disk(std::chrono::microseconds sync);

/// Number and total duration of the syncs so far.
struct Syncs {
  double count = 0;
  double seconds = 0;
};
Syncs syncs_of_sqlite();

}  // namespace varda::bench
