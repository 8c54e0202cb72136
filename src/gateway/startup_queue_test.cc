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
  std::atomic<int> gone{0};
  StartupQueue room({.ready = [&] { return ready.load(); }, .patience = 5min});
  for (const char name : {'a', 'b', 'c'}) {
    ASSERT_TRUE(room.enter(1, [&, name] {
      order += name;
      ++gone;
    }));
  }
  room.look();
  EXPECT_EQ(gone, 0);
  ready = true;
  room.look();
  ASSERT_TRUE(eventually("all three leave the room", [&] { return gone >= 3; }));
  EXPECT_EQ(order, "abc");
  // A room that is ready already needs no look().
  ASSERT_TRUE(room.enter(1, [&] { ++gone; }));
  ASSERT_TRUE(eventually("the fourth leaves the room", [&] { return gone > 3; }));
}

TEST(StartupQueue, RequestRunsWhenPatienceEnds) {
  std::atomic<bool> gone{false};
  StartupQueue room({.ready = [] { return false; }, .patience = 1ms});
  ASSERT_TRUE(room.enter(1, [&] { gone = true; }));
  EXPECT_TRUE(eventually("the patience ends", [&] { return gone.load(); }));
}

TEST(StartupQueue, QueueIsBoundedAndCloseRunsAllRequests) {
  int gone = 0;
  StartupQueue room(
      {.ready = [] { return false; }, .patience = 5min, .waiting_max = 3, .bytes_max = 10});
  EXPECT_FALSE(room.enter(11, [&] { ++gone; }));
  EXPECT_TRUE(room.enter(8, [&] { ++gone; }));
  EXPECT_FALSE(room.enter(3, [&] { ++gone; }));
  EXPECT_TRUE(room.enter(1, [&] { ++gone; }));
  EXPECT_TRUE(room.enter(1, [&] { ++gone; }));
  EXPECT_FALSE(room.enter(0, [&] { ++gone; }));
  room.close();
  EXPECT_EQ(gone, 3);
  EXPECT_FALSE(room.enter(0, [&] { ++gone; }));
  room.close();
  EXPECT_EQ(gone, 3);
}

}  // namespace
}  // namespace varda::gateway
