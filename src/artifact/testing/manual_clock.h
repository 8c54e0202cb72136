// A clock that only a test moves.
#pragma once

#include "base/clock.h"
#include "base/mutex.h"

namespace varda::artifact::testing {

/// Thread-safe.
class ManualClock final : public Clock {
 public:
  SteadyTime now() const override {
    const MutexLock lock(mutex_);
    return SteadyTime(std::chrono::hours(1000)) + passed_;
  }
  WallTime wall() const override {
    const MutexLock lock(mutex_);
    return wall_ + std::chrono::duration_cast<WallTime::duration>(passed_);
  }
  void advance(Duration by) {
    const MutexLock lock(mutex_);
    passed_ += by;
  }
  void set_wall(WallTime wall) {
    const MutexLock lock(mutex_);
    wall_ = wall;
  }

 private:
  mutable Mutex mutex_;
  Duration passed_ GUARDED_BY(mutex_){0};
  WallTime wall_ GUARDED_BY(mutex_) = std::chrono::sys_days(std::chrono::year(2026) / 1 / 1);
};

}  // namespace varda::artifact::testing
