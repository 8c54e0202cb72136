#include "runtime/task.h"

#include <atomic>
#include <gtest/gtest.h>
#include <stdexcept>
#include <thread>

namespace varda::runtime {
namespace task_test {

using std::chrono::milliseconds;

/// Runs tasks on threads until the end of the test, or until stop().
class RunTasks : public ::testing::Test {
 protected:
  ~RunTasks() override { stop(); }
  void start(std::vector<Task> tasks) {
    thread_ = std::jthread([tasks = std::move(tasks)](const std::stop_token& stop) {
      run_tasks(Context(stop), tasks);
    });
  }
  void stop() { thread_ = {}; }
  void reached() {
    const MutexLock lock(mutex_);
    ++steps_;
    changed_.notify_all();
  }
  /// Waits until that many steps ran.
  void await(int steps) {
    const MutexLock lock(mutex_);
    while (steps_ < steps) changed_.wait(mutex_);
  }
  int steps() {
    const MutexLock lock(mutex_);
    return steps_;
  }

  Wakeup wakeup_;

 private:
  Mutex mutex_;
  CondVar changed_;
  int steps_ GUARDED_BY(mutex_) = 0;
  std::jthread thread_;
};

TEST_F(RunTasks, IdleTaskRunsAfterEachWakeup) {
  std::atomic<bool> work = false;
  start({{.name = "idle",
          .due = [&]() -> std::optional<SteadyTime> {
            return work ? std::optional(SteadyTime::min()) : std::nullopt;
          },
          .step =
              [&](const Context&) {
                work = false;
                reached();
              },
          .wakeup = &wakeup_}});
  for (int i = 1; i <= 100; ++i) {
    work = true;
    wakeup_.notify();
    await(i);
  }
  EXPECT_EQ(steps(), 100);
}

TEST_F(RunTasks, ATaskRunsAgainAtItsTime) {
  std::atomic<SteadyTime> next = SteadyTime::min();
  start({{.name = "timed",
          .due = [&] { return std::optional(next.load()); },
          .step =
              [&](const Context&) {
                EXPECT_GE(system_clock().now(), next.load());
                next = system_clock().now() + milliseconds(2);
                reached();
              }}});
  await(5);
}

TEST_F(RunTasks, TasksThatShareAWakeupRunAtTheSameTime) {
  std::atomic<int> inside = 0;
  std::vector<Task> tasks;
  for (int i = 0; i < 2; ++i) {
    tasks.push_back({.name = "pair",
                     .due = [] { return std::optional(SteadyTime::min()); },
                     .step =
                         [&](const Context& ctx) {
                           ++inside;
                           while (inside < 2 && !ctx.done()) std::this_thread::yield();
                           reached();
                           (void)ctx.sleep_until(SteadyTime::max());
                         },
                     .wakeup = &wakeup_});
  }
  start(std::move(tasks));
  await(2);
}

TEST_F(RunTasks, TaskPreparesItsThreadBeforeWaiting) {
  std::atomic<bool> prepared = false;
  start({{.name = "outside",
          .due = []() -> std::optional<SteadyTime> { return std::nullopt; },
          .step = [](const Context&) { FAIL() << "never due"; },
          .wait =
              [&](const Context& ctx) {
                EXPECT_TRUE(prepared);
                reached();
                (void)ctx.sleep_until(SteadyTime::max());
              },
          .prepare_thread = [&] { prepared = true; }}});
  await(1);
}

TEST_F(RunTasks, ExceptionDoesNotEndOtherTasks) {
  std::atomic<bool> thrown = false;
  start({{.name = "throws",
          .due = [] { return std::optional(SteadyTime::min()); },
          .step =
              [&](const Context&) {
                thrown = true;
                throw std::runtime_error("by the test");
              }},
         {.name = "works",
          .due = [] { return std::optional(SteadyTime::min()); },
          .step = [&](const Context&) { reached(); }}});
  await(3);
  while (!thrown) std::this_thread::yield();
}

TEST_F(RunTasks, RunReturnsAfterStopRequest) {
  start({{.name = "idle",
          .due = []() -> std::optional<SteadyTime> { return std::nullopt; },
          .step = [](const Context&) {}}});
  stop();
}

}  // namespace task_test
}  // namespace varda::runtime
