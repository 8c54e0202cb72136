#include "download_lock.h"

#include <atomic>
#include <csignal>
#include <gtest/gtest.h>
#include <memory>
#include <thread>

#include "os/testing/child.h"

namespace varda::app {
namespace {

using os::testing::TestDirectory;

const Context kPatient = Context::background();
// The deadline has passed, so wait() fails if the turn is taken.
Context impatient() { return Context::background().with_deadline(SteadyTime()); }

TEST(DownloadLock, OnlyOneHolderLocksADirectory) {
  const TestDirectory root;
  {
    const DownloadLock held = DownloadLock::wait(kPatient, root / "model").value();
    EXPECT_EQ(root.all(), std::vector<std::string>{".model.fetch.lock"});
    EXPECT_EQ(DownloadLock::wait(impatient(), root / "model").error().code(), Code::kTimeout);
    EXPECT_TRUE(DownloadLock::wait(impatient(), root / "other").ok());
  }
  EXPECT_EQ(root.all(), std::vector<std::string>());
  EXPECT_TRUE(DownloadLock::wait(impatient(), root / "model").ok());
}

TEST(DownloadLock, SpellingsOfADirectoryShareOneLock) {
  const TestDirectory root;
  const DownloadLock held = DownloadLock::wait(kPatient, root / "model").value();
  for (const char* spelling :
       {"model/", "./model", "model/.", "other/../model", "other/../model//"})
    EXPECT_EQ(DownloadLock::wait(impatient(), root / spelling).error().code(), Code::kTimeout)
        << spelling;
}

TEST(DownloadLock, StopRequestEndsTheWait) {
  const TestDirectory root;
  const DownloadLock held = DownloadLock::wait(kPatient, root / "model").value();
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(DownloadLock::wait(Context(stop.get_token()), root / "model").error().code(),
            Code::kCancelled);
}

TEST(DownloadLock, ParentDirectoryIsCreated) {
  const TestDirectory root;
  const DownloadLock held = DownloadLock::wait(kPatient, root / "deep/er/model").value();
  EXPECT_TRUE(std::filesystem::exists(root / "deep/er/.model.fetch.lock"));
}

TEST(DownloadLock, MovedLockStaysHeld) {
  const TestDirectory root;
  auto first = std::make_unique<DownloadLock>(DownloadLock::wait(kPatient, root / "model").value());
  const DownloadLock second = std::move(*first);
  first.reset();
  EXPECT_FALSE(DownloadLock::wait(impatient(), root / "model").ok());
}

// wait() succeeds without a lock, and the download reports the cause.
TEST(DownloadLock, WaitSucceedsIfTheLockFileCannotBeCreated) {
  const TestDirectory root;
  root.write("file", "");
  EXPECT_TRUE(DownloadLock::wait(kPatient, root / "file/model").ok());
  std::filesystem::create_symlink("elsewhere", root / ".model.fetch.lock");
  { EXPECT_TRUE(DownloadLock::wait(kPatient, root / "model").ok()); }
  EXPECT_TRUE(std::filesystem::is_symlink(root / ".model.fetch.lock"));
  EXPECT_FALSE(std::filesystem::exists(root / "elsewhere"));
}

TEST(DownloadLock, KilledHolderReleasesTheLock) {
  const TestDirectory root;
  const os::testing::Ended ended = os::testing::run_in_child([&] {
    const auto held = DownloadLock::wait(kPatient, root / "model");
    ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(ended.code, 128 + SIGKILL);
  EXPECT_EQ(root.all(), std::vector<std::string>{".model.fetch.lock"});
  EXPECT_TRUE(DownloadLock::wait(impatient(), root / "model").ok());
}

// Each holder removes the lock file while others wait for it. Two must never hold the turn at once.
TEST(DownloadLock, ConcurrentHoldersTakeTurns) {
  const TestDirectory root;
  std::atomic<int> inside = 0, most = 0, turns = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        const auto turn = DownloadLock::wait(kPatient, root / "model");
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
