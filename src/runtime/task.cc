#include "runtime/task.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "base/log.h"

namespace varda::runtime {
namespace {

constexpr std::chrono::hours kIdle{1};  // a task that is never due is asked again after this time
constexpr std::chrono::seconds kPauseAfterException{1};

void run_task(const Context& ctx, const Task& task, const Clock& clock) {
  if (task.prepare_thread) task.prepare_thread();
  Wakeup never;
  Wakeup& wakeup = task.wakeup != nullptr ? *task.wakeup : never;
  while (!ctx.done()) {
    if (task.wait) task.wait(ctx);
    const std::uint64_t seen = wakeup.count();  // before due(), so that no event is missed
    const std::optional<SteadyTime> due = task.due();
    const SteadyTime now = clock.now();
    if (due && *due <= now) {
      try {
        task.step(ctx);
      } catch (const std::exception& e) {
        log::error("task threw, continuing", {{"task", task.name}, {"exception", e.what()}});
        (void)ctx.sleep_for(kPauseAfterException);
      }
    } else if (!task.wait) {
      const SteadyTime until = due.value_or(now + kIdle);
      wakeup.wait(ctx.stop_token(), seen, std::min(until, ctx.deadline().value_or(until)));
    }
  }
}

}  // namespace

void run_tasks(const Context& ctx, const std::vector<Task>& tasks, const Clock& clock) {
  std::vector<std::jthread> threads;
  for (const Task& task : tasks)
    threads.emplace_back([&ctx, &task, &clock] { run_task(ctx, task, clock); });
}

}  // namespace varda::runtime
