#include "fetch_turn.h"

#include <atomic>
#include <csignal>
#include <gtest/gtest.h>
#include <memory>
#include <thread>

#include "testing/child.h"

namespace varda::app {
namespace {

using testing::TestDirectory;

const Context kPatient = Context::background();
// The deadline has passed, so wait() fails if the turn is taken.
Context impatient() { return Context::background().with_deadline(SteadyTime()); }

TEST(FetchTurn, OneAtATimeHoldsADirectory) {
  const TestDirectory root;
  {
    const FetchTurn held = FetchTurn::wait(kPatient, root / "model").value();
    EXPECT_EQ(root.all(), std::vector<std::string>{".model.fetch.lock"});
    EXPECT_EQ(FetchTurn::wait(impatient(), root / "model").error().code(), Code::kTimeout);
    EXPECT_TRUE(FetchTurn::wait(impatient(), root / "other").ok());
  }
  EXPECT_EQ(root.all(), std::vector<std::string>());
  EXPECT_TRUE(FetchTurn::wait(impatient(), root / "model").ok());
}

TEST(FetchTurn, EverySpellingOfADirectoryIsTheSame) {
  const TestDirectory root;
  const FetchTurn held = FetchTurn::wait(kPatient, root / "model").value();
  for (const char* spelling :
       {"model/", "./model", "model/.", "other/../model", "other/../model//"})
    EXPECT_EQ(FetchTurn::wait(impatient(), root / spelling).error().code(), Code::kTimeout)
        << spelling;
}

TEST(FetchTurn, AStopEndsTheWait) {
  const TestDirectory root;
  const FetchTurn held = FetchTurn::wait(kPatient, root / "model").value();
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(FetchTurn::wait(Context(stop.get_token()), root / "model").error().code(),
            Code::kCancelled);
}

TEST(FetchTurn, MakesTheParentDirectory) {
  const TestDirectory root;
  const FetchTurn held = FetchTurn::wait(kPatient, root / "deep/er/model").value();
  EXPECT_TRUE(std::filesystem::exists(root / "deep/er/.model.fetch.lock"));
}

TEST(FetchTurn, IsMovedWithItsLock) {
  const TestDirectory root;
  auto first = std::make_unique<FetchTurn>(FetchTurn::wait(kPatient, root / "model").value());
  const FetchTurn second = std::move(*first);
  first.reset();
  EXPECT_FALSE(FetchTurn::wait(impatient(), root / "model").ok());
}

// wait() succeeds without a lock, and the download reports the cause.
TEST(FetchTurn, WhereNoLockCanBeMadeThereIsNoWait) {
  const TestDirectory root;
  root.write("file", "");
  EXPECT_TRUE(FetchTurn::wait(kPatient, root / "file/model").ok());
  std::filesystem::create_symlink("elsewhere", root / ".model.fetch.lock");
  { EXPECT_TRUE(FetchTurn::wait(kPatient, root / "model").ok()); }
  EXPECT_TRUE(std::filesystem::is_symlink(root / ".model.fetch.lock"));
  EXPECT_FALSE(std::filesystem::exists(root / "elsewhere"));
}

TEST(FetchTurn, AKilledHolderHoldsNothing) {
  const TestDirectory root;
  const testing::Ended ended = testing::run_in_child([&] {
    const auto held = FetchTurn::wait(kPatient, root / "model");
    ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(ended.code, 128 + SIGKILL);
  EXPECT_EQ(root.all(), std::vector<std::string>{".model.fetch.lock"});
  EXPECT_TRUE(FetchTurn::wait(impatient(), root / "model").ok());
}

// Each holder removes the lock file while others wait for it. Two must never hold the turn at once.
TEST(FetchTurn, ManyTakeTurns) {
  const TestDirectory root;
  std::atomic<int> inside = 0, most = 0, turns = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        const auto turn = FetchTurn::wait(kPatient, root / "model");
        const int now = ++inside;
        if (now > most) most = now;
        turns += turn.ok();
        --inside;
      });
    }
  }
  EXPECT_EQ(turns, 4);
  EXPECT_EQ(most, 1);
  EXPECT_EQ(root.all(), std::vector<std::string>());
}

}  // namespace
}  // namespace varda::app
