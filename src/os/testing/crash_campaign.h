// A crash campaign runs seeded workloads and crashes before every relevant call, with several
// subsets of the unsynced data. Each state is recovered and checked.
//
//   CrashCampaign campaign("store_test --gtest_filter=StoreCrash.*", 1000);
//   while (campaign.next_seed()) {
//     CrashingFileSystem fs;
//     fs.on_call([&](auto, auto&) { campaign.point(fs, 0, check); return Status(); });
//     work(fs, campaign.seed());
//   }
//   EXPECT_EQ(campaign.failure(), "");
//
// Environment: VARDA_CRASH_STATES is the number of states; VARDA_CRASH_SEED the first seed (default
// 1); VARDA_SOAK_SECONDS a time limit. VARDA_CRASH_POINT and VARDA_CRASH_SUBSET select one state of
// the first seed, to reproduce a failure; the failure message is the command.
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

  /// Selects the next workload; false: enough states, or a failure.
  bool next_seed();
  std::uint64_t seed() const { return seed_; }

  /// Checks a state after a crash: "" or an error. `rng` is for random choices of the check, and
  /// depends only on the state.
  using Check = std::function<std::string(CrashingFileSystem& left, Rng& rng)>;
  /// Called before a call of the workload. Skipped unless the disk or `acknowledged` (promises so
  /// far) changed since the last one.
  void point(const CrashingFileSystem& fs, std::uint64_t acknowledged, const Check& check);
  /// Counts one more recovered state, checked inside a check.
  void count_nested() { ++states_; }

  /// No more checks follow, so the workload may end.
  bool over() const;
  std::uint64_t states() const { return states_; }
  const std::string& failure() const { return failure_; }

 private:
  void progress();

  const std::string command_;
  std::uint64_t wanted_, seed_;
  std::optional<std::uint64_t> only_point_, only_subset_;
  std::optional<SteadyTime> deadline_;
  SteadyTime begin_, reported_at_;
  bool started_ = false;
  std::uint64_t states_ = 0, points_ = 0;
  std::uint64_t last_changes_ = UINT64_MAX, last_acknowledged_ = UINT64_MAX;
  std::string failure_;
};

}  // namespace varda::os::testing
