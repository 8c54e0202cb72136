#include "descriptors.h"

#include <gtest/gtest.h>
#include <limits>
#include <sys/resource.h>

#include "os/testing/child.h"

namespace varda::app {
namespace {

struct Room {
  std::size_t connections = 0;
  rlim_t files = 0;
  friend bool operator==(const Room&, const Room&) = default;
};
void PrintTo(const Room& room, std::ostream* out) {
  *out << room.connections << " connections, " << room.files << " files";
}

/// Runs make_room_for_connections() in a process with these limits of open files.
Room room_within(rlim_t soft, rlim_t hard, std::size_t wanted) {
  const os::testing::Ended ended = os::testing::run_in_child([&] {
    const rlimit limits{soft, hard};
    if (::setrlimit(RLIMIT_NOFILE, &limits) != 0) return 1;
    const std::size_t connections = make_room_for_connections(wanted);
    rlimit now{};
    if (::getrlimit(RLIMIT_NOFILE, &now) != 0) return 2;
    std::printf("%zu %llu", connections, static_cast<unsigned long long>(now.rlim_cur));
    return 0;
  });
  EXPECT_EQ(ended.code, 0) << ended.err;
  unsigned long long connections = 0, files = 0;
  EXPECT_EQ(std::sscanf(ended.out.c_str(), "%llu %llu", &connections, &files), 2) << ended.out;
  return {static_cast<std::size_t>(connections), static_cast<rlim_t>(files)};
}

class MakeRoomForConnections : public ::testing::Test {
 protected:
  void SetUp() override {
    rlimit now{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &now), 0);
    if (now.rlim_max < 4000) GTEST_SKIP() << "this user may open fewer than 4000 files";
  }
};

TEST_F(MakeRoomForConnections, SoftLimitIsRaisedOnlyAsFarAsNeeded) {
  EXPECT_EQ(room_within(256, 4000, 1000), (Room{1000, 1512}));
  EXPECT_EQ(room_within(256, 1512, 1000), (Room{1000, 1512}));
}

TEST_F(MakeRoomForConnections, HigherSoftLimitIsNotLowered) {
  EXPECT_EQ(room_within(3000, 4000, 1000), (Room{1000, 3000}));
}

TEST_F(MakeRoomForConnections, HardLimitReducesTheConnectionCount) {
  EXPECT_EQ(room_within(256, 1400, 1000), (Room{888, 1400}));
  // Half of the files: the usual 512 for other files would leave almost no connections.
  EXPECT_EQ(room_within(256, 600, 1000), (Room{300, 600}));
}

TEST_F(MakeRoomForConnections, ZeroAndHugeConnectionCountsAreAccepted) {
  EXPECT_EQ(room_within(256, 4000, std::numeric_limits<std::size_t>::max()), (Room{3488, 4000}));
  EXPECT_EQ(room_within(256, 4000, 0), (Room{0, 512}));
}

}  // namespace
}  // namespace varda::app
