#include "net/timers.h"

#include <atomic>
#include <gtest/gtest.h>

#include "base/testing/eventually.h"

namespace varda::net {
namespace timers_test {

using std::chrono::milliseconds;

struct Counter final : Timers::Timed {
  void due() override { ++calls; }
  std::atomic<int> calls = 0;
};

SteadyTime in(milliseconds time) { return std::chrono::steady_clock::now() + time; }

TEST(Timers, DeadlinesExpireInOrder) {
  Counter first, second, never;
  Timers timers;
  timers.add(in(std::chrono::hours(1)), never);
  timers.add(in(milliseconds(1)), first);
  timers.add(in(milliseconds(60)), second);
  EXPECT_TRUE(eventually([&] { return second.calls == 1; }));
  EXPECT_EQ(first.calls, 1);
  EXPECT_EQ(never.calls, 0);
}

TEST(Timers, NewDeadlineReplacesTheOld) {
  Counter counter, other;
  Timers timers;
  SteadyTime old;
  int before = 0;
  // Timers are never early. If this thread was so slow that the old deadline has passed, it tries
  // again.
  do {
    old = in(milliseconds(100));
    timers.add(old, counter);
    timers.add(in(std::chrono::hours(1)), counter);
    before = counter.calls;
  } while (in(milliseconds(0)) >= old);
  timers.add(old, other);  // expires after `counter`, if that still has the old deadline
  EXPECT_TRUE(eventually([&] { return other.calls == 1; }));
  EXPECT_EQ(counter.calls, before);
  timers.add(in(milliseconds(1)), counter);
  EXPECT_TRUE(eventually([&] { return counter.calls == before + 1; }));
}

TEST(Timers, AllCallsEveryTargetUntilItIsRemoved) {
  Counter with, without, removed;
  Timers timers;
  timers.add(in(std::chrono::hours(1)), with);
  timers.add(without);
  timers.add(removed);
  timers.remove(removed);
  timers.remove(removed);
  timers.all();
  EXPECT_EQ(with.calls, 1);
  EXPECT_EQ(without.calls, 1);
  EXPECT_EQ(removed.calls, 0);
}

}  // namespace timers_test
}  // namespace varda::net
