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

TEST(Timers, EarlierDeadlineReplacesALaterOne) {
  Counter counter, other;
  Timers timers;
  timers.add(in(milliseconds(1)), counter);
  timers.add(in(std::chrono::hours(1)), counter);
  timers.add(in(milliseconds(120)), other);
  EXPECT_TRUE(eventually([&] { return other.calls == 1; }));
  EXPECT_LE(counter.calls, 1);  // the first deadline may have passed already
  const int before = counter.calls;
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
