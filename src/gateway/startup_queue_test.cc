#include "gateway/startup_queue.h"

#include <atomic>
#include <gtest/gtest.h>
#include <string>

#include "base/testing/eventually.h"

namespace varda::gateway {
namespace {

using namespace std::chrono_literals;

TEST(StartupQueue, RequestsRunInOrderOnceReady) {
  std::atomic<bool> ready{false};
  std::string order;
  std::atomic<int> released{0};
  StartupQueue room({.ready = [&] { return ready.load(); }, .patience = 5min});
  for (const char name : {'a', 'b', 'c'}) {
    ASSERT_TRUE(room.enter(1, [&, name] {
      order += name;
      ++released;
    }));
  }
  room.look();
  EXPECT_EQ(released, 0);
  ready = true;
  room.look();
  ASSERT_TRUE(eventually("all three leave the room", [&] { return released >= 3; }));
  EXPECT_EQ(order, "abc");
  // A room that is ready already needs no look().
  ASSERT_TRUE(room.enter(1, [&] { ++released; }));
  ASSERT_TRUE(eventually("the fourth leaves the room", [&] { return released > 3; }));
}

TEST(StartupQueue, RequestRunsWhenPatienceEnds) {
  std::atomic<bool> released{false};
  StartupQueue room({.ready = [] { return false; }, .patience = 1ms});
  ASSERT_TRUE(room.enter(1, [&] { released = true; }));
  EXPECT_TRUE(eventually("the patience ends", [&] { return released.load(); }));
}

TEST(StartupQueue, QueueIsBoundedAndCloseRunsAllRequests) {
  int released = 0;
  StartupQueue room(
      {.ready = [] { return false; }, .patience = 5min, .waiting_max = 3, .bytes_max = 10});
  EXPECT_FALSE(room.enter(11, [&] { ++released; }));
  EXPECT_TRUE(room.enter(8, [&] { ++released; }));
  EXPECT_FALSE(room.enter(3, [&] { ++released; }));
  EXPECT_TRUE(room.enter(1, [&] { ++released; }));
  EXPECT_TRUE(room.enter(1, [&] { ++released; }));
  EXPECT_FALSE(room.enter(0, [&] { ++released; }));
  room.close();
  EXPECT_EQ(released, 3);
  EXPECT_FALSE(room.enter(0, [&] { ++released; }));
  room.close();
  EXPECT_EQ(released, 3);
}

}  // namespace
}  // namespace varda::gateway
