// A disk whose syncs take a given time: what a machine's own disk would hide, or shared ones blur.
#pragma once

#include <chrono>

namespace varda::bench {

/// From now on SQLite's files of this process are on such a disk: each sync of theirs takes `sync` and no real one is made, so that
/// who else uses the machine's disk is not measured; the thread sleeps meanwhile, as it would. Zero: the disk as it is. Before the
/// first database is opened; may be called again, for another time.
void slow_disk(std::chrono::microseconds sync);

/// Of the syncs so far: how many, and how long they took in all.
struct Syncs {
  double count = 0;
  double seconds = 0;
};
Syncs syncs_of_sqlite();

}  // namespace varda::bench
