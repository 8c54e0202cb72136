#include "net/internal/bodies.h"

#include <gtest/gtest.h>

namespace varda::net::internal {
namespace bodies_test {

using namespace std::chrono_literals;
using Room = Bodies::Room;

Bodies::Place place(std::uint64_t connection) {
  return {.loop = nullptr, .connection = connection};
}

SteadyTime at(Duration time) { return SteadyTime() + time; }

std::vector<std::uint64_t> connections(const Bodies::Growth& growth) {
  std::vector<std::uint64_t> out;
  for (const Bodies::Place& one : growth.evicted) out.push_back(one.connection);
  return out;
}

TEST(Bodies, SlowestUnfinishedBodyIsEvicted) {
  Bodies bodies;
  bodies.limit({.all = 100});
  EXPECT_EQ(bodies.grow(place(1), "a", 40, at(1s)).room, Room::kFound);
  EXPECT_EQ(bodies.grow(place(2), "b", 40, at(2s)).room, Room::kFound);
  EXPECT_EQ(bodies.grow(place(1), "a", 50, at(4s)).room, Room::kFound);  // it has made progress
  const Bodies::Growth third = bodies.grow(place(3), "c", 30, at(3s));
  EXPECT_EQ(third.room, Room::kFound);
  EXPECT_EQ(connections(third), std::vector<std::uint64_t>{2});
  EXPECT_EQ(bodies.grow(place(2), "b", 41, at(5s)).room, Room::kEvicted);
  EXPECT_FALSE(bodies.complete(place(2)));
  EXPECT_TRUE(bodies.complete(place(3)));
}

TEST(Bodies, GrowingBodyThatIsSlowestGetsNoRoom) {
  Bodies bodies;
  bodies.limit({.all = 100});
  EXPECT_EQ(bodies.grow(place(1), "a", 60, at(1s)).room, Room::kFound);
  EXPECT_EQ(bodies.grow(place(2), "b", 40, at(2s)).room, Room::kFound);
  const Bodies::Growth more = bodies.grow(place(1), "a", 61, at(1s));
  EXPECT_EQ(more.room, Room::kNone);
  EXPECT_TRUE(more.evicted.empty());
  EXPECT_EQ(bodies.grow(place(2), "b", 100, at(2s)).room, Room::kFound) << "the lost room is free";
}

TEST(Bodies, CompleteBodyKeepsItsRoomUntilReleased) {
  Bodies bodies;
  bodies.limit({.all = 100});
  EXPECT_EQ(bodies.grow(place(1), "a", 80, at(1s)).room, Room::kFound);
  EXPECT_TRUE(bodies.complete(place(1)));
  EXPECT_EQ(bodies.grow(place(2), "b", 30, at(2s)).room, Room::kNone);
  bodies.release(place(2));
  bodies.release(place(1));
  EXPECT_EQ(bodies.grow(place(2), "b", 100, at(2s)).room, Room::kFound);
}

TEST(Bodies, SlowestBodyOfAnAddressIsEvictedAboveItsShare) {
  Bodies bodies;
  bodies.limit({.all = 100, .per_address = 50});
  EXPECT_EQ(bodies.grow(place(1), "b", 40, at(1s)).room, Room::kFound);
  EXPECT_EQ(bodies.grow(place(2), "a", 30, at(2s)).room, Room::kFound);
  const Bodies::Growth third = bodies.grow(place(3), "a", 30, at(3s));
  EXPECT_EQ(third.room, Room::kFound);
  EXPECT_EQ(connections(third), std::vector<std::uint64_t>{2});
  EXPECT_TRUE(bodies.complete(place(3)));
  EXPECT_EQ(bodies.grow(place(4), "a", 21, at(4s)).room, Room::kNone);
  EXPECT_EQ(bodies.grow(place(5), "", 30, at(5s)).room, Room::kFound)
      << "clients without an address have no share";
}

TEST(Bodies, LargeGrowthEvictsSeveralBodies) {
  Bodies bodies;
  bodies.limit({.all = 100});
  for (std::uint64_t i = 1; i <= 4; ++i)
    EXPECT_EQ(bodies.grow(place(i), "a", 25, at(std::chrono::seconds(i))).room, Room::kFound);
  const Bodies::Growth large = bodies.grow(place(5), "b", 40, at(9s));
  EXPECT_EQ(large.room, Room::kFound);
  EXPECT_EQ(connections(large), (std::vector<std::uint64_t>{1, 2}));
}

}  // namespace bodies_test
}  // namespace varda::net::internal
