#include "serving/executor.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <gtest/gtest.h>
#include <latch>
#include <mutex>

namespace varda::serving {
namespace executor_test {

class Function final : public Job {
 public:
  explicit Function(std::function<void()> body, std::size_t bytes = 0)
      : body_(std::move(body)), bytes_(bytes) {}
  void run() override { body_(); }
  std::size_t bytes() const override { return bytes_; }

 private:
  std::function<void()> body_;
  const std::size_t bytes_;
};

Status submit(Executor& executor, std::function<void()> body, std::size_t bytes = 0) {
  std::unique_ptr<Job> job = std::make_unique<Function>(std::move(body), bytes);
  return executor.submit(job);
}

TEST(Executor, ShortJobRunsOnTheThreadOfTheCaller) {
  Executor executor({});
  std::thread::id ran;
  ASSERT_TRUE(submit(executor, [&] { ran = std::this_thread::get_id(); }).ok());
  EXPECT_EQ(ran, std::this_thread::get_id());
}

TEST(Executor, LongOrLargeJobsRunOnInstanceThreads) {
  Executor executor({.inline_bytes_max = 100});
  std::promise<std::thread::id> large;
  ASSERT_TRUE(submit(
                  executor, [&] { large.set_value(std::this_thread::get_id()); }, 101)
                  .ok());
  EXPECT_NE(large.get_future().get(), std::this_thread::get_id());
  executor.expect(std::chrono::seconds(1));
  std::promise<std::thread::id> slow;
  ASSERT_TRUE(submit(executor, [&] { slow.set_value(std::this_thread::get_id()); }).ok());
  EXPECT_NE(slow.get_future().get(), std::this_thread::get_id());
}

TEST(Executor, ThrowingJobFreesItsInstance) {
  Executor executor({.instances = 1});
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(submit(executor, [] { throw std::bad_alloc(); }).ok()) << "on this thread";
  executor.expect(std::chrono::seconds(1));
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(submit(executor, [] { throw 7; }).ok()) << "on an instance's thread";
  std::promise<void> ran;
  ASSERT_TRUE(submit(executor, [&] { ran.set_value(); }).ok());
  ran.get_future().wait();
}

TEST(Executor, JobsRunInOrderUpToTheInstanceLimit) {
  Executor executor({.instances = 1});
  executor.expect(std::chrono::seconds(1));
  std::mutex mutex;
  std::vector<int> order;
  int running = 0, most = 0;
  std::latch done(20);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(submit(executor, [&, i] {
                  {
                    const std::lock_guard lock(mutex);
                    most = std::max(most, ++running);
                    order.push_back(i);
                  }
                  std::this_thread::yield();
                  const std::lock_guard lock(mutex);
                  --running;
                  done.count_down();
                }).ok());
  }
  done.wait();
  const std::lock_guard lock(mutex);
  EXPECT_EQ(most, 1);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(Executor, FullQueueRefusesAndReturnsTheJob) {
  Executor executor({.instances = 1, .queue_max = 2, .queue_bytes_max = 100});
  executor.expect(std::chrono::seconds(1));
  std::latch started(1), go(1), done(3);
  ASSERT_TRUE(submit(executor, [&] {
                started.count_down();
                go.wait();
                done.count_down();
              }).ok());
  started.wait();
  // The first queued job may have any size; the second has to fit the byte limit.
  ASSERT_TRUE(submit(
                  executor, [&] { done.count_down(); }, 500)
                  .ok());
  EXPECT_EQ(submit(
                executor, [] {}, 1)
                .error()
                .code(),
            Code::kExhausted);
  std::unique_ptr<Job> job = std::make_unique<Function>([] {}, 1);
  EXPECT_EQ(executor.submit(job).error().message(),
            "the queue is full: 1 requests of 500 bytes are waiting");
  EXPECT_NE(job, nullptr);
  EXPECT_EQ(executor.waiting(), 1u);
  go.count_down();
  done.count_down();
  done.wait();
}

TEST(Executor, WithdrawnJobFreesItsPlaceAndARunningJobStays) {
  class Placed final : public Job {
   public:
    Placed(std::atomic<std::uint64_t>& place, std::function<void()> body)
        : place_(place), body_(std::move(body)) {}
    void run() override { body_(); }
    std::size_t bytes() const override { return 60; }
    void waits(std::uint64_t place) override { place_ = place; }

   private:
    std::atomic<std::uint64_t>& place_;
    std::function<void()> body_;
  };
  std::latch started(1), go(1), done(3);
  std::atomic<std::uint64_t> first{0}, second{0}, third{0};
  Executor executor({.instances = 1, .queue_max = 2, .queue_bytes_max = 120});
  executor.expect(std::chrono::seconds(1));
  const auto submit = [&](std::atomic<std::uint64_t>& place, std::function<void()> body) {
    std::unique_ptr<Job> job = std::make_unique<Placed>(place, std::move(body));
    return executor.submit(job);
  };
  ASSERT_TRUE(submit(first, [&] {
                started.count_down();
                go.wait();
                done.count_down();
              }).ok());
  started.wait();
  EXPECT_EQ(executor.withdraw(first), nullptr) << "it runs";
  ASSERT_TRUE(submit(second, [] { FAIL() << "it was withdrawn"; }).ok());
  ASSERT_TRUE(submit(third, [&] { done.count_down(); }).ok());
  EXPECT_EQ(submit(first, [] {}).error().code(), Code::kExhausted);
  EXPECT_NE(executor.withdraw(second), nullptr);
  EXPECT_EQ(executor.withdraw(second), nullptr) << "once";
  EXPECT_EQ(executor.withdraw(third + 100), nullptr);
  EXPECT_EQ(executor.waiting(), 1u);
  ASSERT_TRUE(submit(first, [&] { done.count_down(); }).ok())
      << "in the place that is free, and with its bytes";
  go.count_down();
  done.wait();
}

TEST(Executor, CallerThreadIsNotUsedWhileAllInstancesAreBusy) {
  Executor executor({.instances = 1});
  std::latch started(1), go(1);
  std::thread other([&] {
    ASSERT_TRUE(submit(executor, [&] {
                  started.count_down();
                  go.wait();
                }).ok());
  });
  started.wait();
  std::promise<std::thread::id> ran;
  ASSERT_TRUE(submit(executor, [&] { ran.set_value(std::this_thread::get_id()); }).ok());
  go.count_down();
  EXPECT_NE(ran.get_future().get(), std::this_thread::get_id());
  other.join();
}

// A replaced version lives until its last request is answered. It then ends on a thread of that
// executor.
TEST(Executor, ExecutorEndsOnItsOwnThreadAfterTheLastJob) {
  struct Owner {
    std::shared_ptr<std::promise<void>> ended = std::make_shared<std::promise<void>>();
    Executor executor{{.instances = 2}};
    ~Owner() { ended->set_value(); }
  };
  for (int round = 0; round < 50; ++round) {
    const auto released = std::make_shared<std::latch>(1);
    auto owner = std::make_shared<Owner>();
    const auto ended = owner->ended;
    owner->executor.expect(std::chrono::hours(1));
    ASSERT_TRUE(submit(owner->executor, [owner, released] { released->wait(); }).ok());
    owner.reset();
    released->count_down();
    ended->get_future().get();
  }
}

}  // namespace executor_test
}  // namespace varda::serving
