// Task: one sequence of steps. run_tasks() gives each task a thread, which waits between steps. A
// simulator steps the same tasks in one thread, in any order.
//
//   runtime::Wakeup wakeup;             // a member of the object that owns the task's state
//   runtime::Task task{.name = "report",
//                      .due = [this] { return due(); },
//                      .step = [this](const Context& ctx) { step(ctx); },
//                      .wakeup = &wakeup};
//   void Reporter::changed() { ...; wakeup.notify(); }
//   runtime::run_tasks(ctx, {task});    // blocks until ctx is done
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/context.h"
#include "base/mutex.h"

namespace varda::runtime {

/// Wakes the threads of tasks. Several tasks may share one. Thread-safe; the caller of notify() may
/// hold other locks.
class Wakeup {
 public:
  /// Makes the waiting threads call due() again. Call it after each change that may make a task
  /// due earlier.
  void notify() {
    const MutexLock lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  /// The number of calls of notify().
  std::uint64_t count() const {
    const MutexLock lock(mutex_);
    return count_;
  }
  /// Waits until count() differs from `seen`, until `until`, or for a stop request.
  void wait(const std::stop_token& stop, std::uint64_t seen, SteadyTime until) {
    const MutexLock lock(mutex_);
    while (count_ == seen && changed_.wait_until(mutex_, stop, until)) continue;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::uint64_t count_ GUARDED_BY(mutex_) = 0;
};

struct Task {
  std::string name;
  /// The time at which step() has work; in the past: now. Absent: only after an event elsewhere.
  std::function<std::optional<SteadyTime>()> due;
  /// Does one piece of work. Waits only for answers to its own requests. Never called twice at
  /// once.
  std::function<void(const Context&)> step;
  /// Notified by the events that due() depends on; outlives the task. Null: due() depends on time
  /// only.
  Wakeup* wakeup = nullptr;
  /// Waits for an event outside this process, instead of `wakeup`. Only run_tasks() calls it,
  /// before each due().
  std::function<void(const Context&)> wait = {};
  /// Prepares the task's thread. Only run_tasks() calls it.
  std::function<void()> prepare_thread = {};
};

/// Runs each task on a thread until `ctx` is done, then joins all threads. The tasks measure time
/// by `clock`. An exception of a step is logged, and the task pauses for a second.
void run_tasks(const Context& ctx, const std::vector<Task>& tasks,
               const Clock& clock = system_clock());

}  // namespace varda::runtime
