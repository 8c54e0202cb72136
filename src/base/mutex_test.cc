#include "base/mutex.h"

#include <gtest/gtest.h>
#include <thread>

#include "base/clock.h"

namespace varda {
namespace mutex_test {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(CondVar, WaitWithAStopTokenReturnsAfterANotification) {
  Mutex mutex;
  CondVar changed;
  bool ready = false;
  const std::jthread other([&] {
    const MutexLock lock(mutex);
    ready = true;
    changed.notify_all();
  });
  const std::stop_source never;
  const MutexLock lock(mutex);
  while (!ready) changed.wait(mutex, never.get_token());
  EXPECT_FALSE(never.stop_requested());
}

TEST(CondVar, StopRequestEndsAWait) {
  Mutex mutex;
  CondVar changed;
  std::stop_source stop;
  const std::jthread other([&] {
    { const MutexLock lock(mutex); }
    stop.request_stop();
  });
  const MutexLock lock(mutex);
  while (!stop.stop_requested()) changed.wait(mutex, stop.get_token());
  changed.wait(mutex, stop.get_token());  // returns at once
  EXPECT_FALSE(changed.wait_until(mutex, stop.get_token(), system_clock().now() + hours(1)));
}

TEST(CondVar, WaitUntilEndsAtItsTime) {
  Mutex mutex;
  CondVar changed;
  const std::stop_source never;
  const MutexLock lock(mutex);
  const SteadyTime until = system_clock().now() + milliseconds(5);
  while (changed.wait_until(mutex, never.get_token(), until)) continue;
  EXPECT_GE(system_clock().now(), until);
  EXPECT_FALSE(changed.wait_until(mutex, until));
}

TEST(CondVar, WaitUntilDistinguishesNotificationFromTimeout) {
  Mutex mutex;
  CondVar changed;
  bool ready = false;
  const std::jthread other([&] {
    const MutexLock lock(mutex);
    ready = true;
    changed.notify_one();
  });
  const std::stop_source never;
  const SteadyTime until = system_clock().now() + hours(1);
  const MutexLock lock(mutex);
  while (!ready) EXPECT_TRUE(changed.wait_until(mutex, never.get_token(), until));
}

}  // namespace mutex_test
}  // namespace varda
