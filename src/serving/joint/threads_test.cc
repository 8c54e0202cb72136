#include "serving/joint/threads.h"

#include <atomic>
#include <functional>
#include <future>
#include <gtest/gtest.h>
#include <latch>

#include "base/context.h"

namespace varda::serving::joint {
namespace threads_test {

class Function final : public Job {
 public:
  explicit Function(std::function<void()> body) : body_(std::move(body)) {}
  void run() override { body_(); }
  std::size_t bytes() const override { return 0; }

 private:
  std::function<void()> body_;
};

Status submit(Threads& threads, std::function<void()> body) {
  std::unique_ptr<Job> job = std::make_unique<Function>(std::move(body));
  return threads.submit(job);
}

TEST(Threads, JobsRunConcurrentlyUpToTheLimitAndMoreAreRefused) {
  Threads threads({.max = 3});
  EXPECT_EQ(threads.count(), 0u) << "none is started before it is needed";
  std::latch all(3);
  std::latch end(1);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(submit(threads, [&] {
                  all.count_down();
                  end.wait();
                }).ok());
  }
  all.wait();  // all three run concurrently
  std::unique_ptr<Job> refused = std::make_unique<Function>([] {});
  EXPECT_EQ(threads.submit(refused).error().code(), Code::kExhausted);
  EXPECT_NE(refused, nullptr);
  end.count_down();
  threads.stop();
  EXPECT_EQ(threads.submit(refused).error().code(), Code::kUnavailable);
}

TEST(Threads, IdleThreadIsReused) {
  Threads threads({.max = 1});
  for (int i = 0; i < 100; ++i) {
    std::promise<void> done;
    const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
    // The thread counts as busy until it has returned from the previous job.
    while (!submit(threads, [&] { done.set_value(); }).ok()) ASSERT_TRUE(ctx.check().ok());
    done.get_future().get();
    EXPECT_EQ(threads.count(), 1u);
  }
}

TEST(Threads, ThrowingJobLeavesItsThreadUsable) {
  Threads threads({.max = 1});
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  std::promise<void> done;
  while (!submit(threads, [] { throw std::bad_alloc(); }).ok()) ASSERT_TRUE(ctx.check().ok());
  while (!submit(threads, [&] { done.set_value(); }).ok()) ASSERT_TRUE(ctx.check().ok());
  done.get_future().get();
  EXPECT_EQ(threads.count(), 1u);
}

TEST(Threads, IdleThreadsEnd) {
  Threads threads({.max = 4, .idle = std::chrono::milliseconds(1)});
  std::latch all(4);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(submit(threads, [&] { all.arrive_and_wait(); }).ok());
  const Context ctx = Context::background().with_timeout(std::chrono::seconds(60));
  while (threads.count() > 0) ASSERT_TRUE(ctx.check().ok());
  std::promise<void> again;
  ASSERT_TRUE(submit(threads, [&] { again.set_value(); }).ok());
  again.get_future().get();
}

TEST(Threads, EveryAcceptedJobRuns) {
  std::atomic<int> ran{0};
  int taken = 0;
  {
    Threads threads({.max = 8, .idle = std::chrono::milliseconds(1)});
    for (int i = 0; i < 2000; ++i) taken += submit(threads, [&] { ++ran; }).ok() ? 1 : 0;
  }
  EXPECT_GT(taken, 0);
  EXPECT_EQ(ran, taken);
}

}  // namespace threads_test
}  // namespace varda::serving::joint
