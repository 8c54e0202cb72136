// A campaign of crashes: one seeded workload after the other, cut off before every call that matters, with several subsets of what
// was not synced; each state is recovered and checked.
//
//   CrashCampaign campaign("store_test --gtest_filter=StoreCrash.EveryState", 1000);
//   while (campaign.next_seed()) {
//     CrashingFileSystem fs;
//     fs.on_call([&](auto, auto&) { campaign.point(fs, 0, check); return Status(); });
//     work(fs, campaign.seed());
//   }
//   EXPECT_EQ(campaign.failure(), "");
//
// From the environment: VARDA_CRASH_STATES, how many states (else the default); VARDA_CRASH_SEED, the first seed (else 1);
// VARDA_SOAK_SECONDS, when to stop in any case; VARDA_CRASH_POINT and VARDA_CRASH_SUBSET, the one state of the first seed to look
// at, which is how a failure is seen again: its message is the command.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/rng.h"
#include "os/testing/crashing_file_system.h"

namespace varda::os::testing {

/// Not thread-safe.
class CrashCampaign {
 public:
  CrashCampaign(std::string command, std::uint64_t states_default);

  /// The next workload to run; false: enough, or a state was wrong.
  bool next_seed();
  std::uint64_t seed() const { return seed_; }

  /// What is wrong with a state that a crash left, or "". `rng` is for what else the check does: the same for the same state.
  using Check = std::function<std::string(CrashingFileSystem& left, Rng& rng)>;
  /// Before a call. Nothing is done if neither the disk nor `acknowledged`, what the workload was promised so far, changed since
  /// the last one.
  void point(const CrashingFileSystem& fs, std::uint64_t acknowledged, const Check& check);
  /// One more state was recovered and checked, inside of a check.
  void count_nested() { ++states_; }

  /// Nothing more will be checked: the workload may end.
  bool over() const;
  std::uint64_t states() const { return states_; }
  const std::string& failure() const { return failure_; }

 private:
  void progress();

  const std::string command_;
  std::uint64_t wanted_, seed_;
  std::optional<std::uint64_t> only_point_, only_subset_;
  std::optional<SteadyTime> deadline_;
  SteadyTime begin_, told_;
  bool started_ = false;
  std::uint64_t states_ = 0, points_ = 0;
  std::uint64_t last_changes_ = UINT64_MAX, last_acknowledged_ = UINT64_MAX;
  std::string failure_;
};

}  // namespace varda::os::testing
