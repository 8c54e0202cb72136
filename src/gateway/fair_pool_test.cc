#include "gateway/fair_pool.h"

#include <atomic>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <stdexcept>
#include <thread>

#include "base/testing/eventually.h"

namespace varda::gateway {
namespace {

/// Work that blocks until release(), and records the order of starts.
class Bench {
 public:
  FairPool::Work work(const std::string& name) {
    return [this, name] {
      MutexLock lock(mutex_);
      began_.push_back(name);
      ++running_[name];
      changed_.notify_all();
      while (!open_) changed_.wait(mutex_);
      --running_[name];
    };
  }
  void wait_began(std::size_t count) {
    const auto until = std::chrono::steady_clock::now() + kTestPatience;
    MutexLock lock(mutex_);
    while (began_.size() < count && changed_.wait_until(mutex_, until)) {
    }
    ASSERT_GE(began_.size(), count) << "that many pieces of work begin";
  }
  void release() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  std::vector<std::string> began() {
    MutexLock lock(mutex_);
    return began_;
  }
  std::size_t running(const std::string& name) {
    MutexLock lock(mutex_);
    return running_[name];
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ GUARDED_BY(mutex_) = false;
  std::vector<std::string> began_ GUARDED_BY(mutex_);
  std::map<std::string, std::size_t> running_ GUARDED_BY(mutex_);
};

TEST(FairPool, FloodingKeyIsLimitedToItsThreads) {
  Bench bench;
  FairPool pool({.threads = 4, .in_flight_per_key_max = 2, .waiting_per_key_max = 100});
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(pool.submit("flood", 0, bench.work("flood")));
  bench.wait_began(2);
  EXPECT_TRUE(pool.submit("a", 0, bench.work("a")));
  EXPECT_TRUE(pool.submit("b", 0, bench.work("b")));
  bench.wait_began(4);
  EXPECT_EQ(bench.running("flood"), 2u);
  EXPECT_EQ(bench.running("a"), 1u);
  EXPECT_EQ(bench.running("b"), 1u);
  EXPECT_EQ(pool.waiting(), 48u);
  bench.release();
  bench.wait_began(52);
}

TEST(FairPool, WaitingKeysRunRoundRobin) {
  Bench gate;
  Bench order;
  order.release();
  FairPool pool({.threads = 1, .in_flight_per_key_max = 1, .waiting_per_key_max = 100});
  EXPECT_TRUE(pool.submit("gate", 0, gate.work("gate")));
  gate.wait_began(1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.submit("a", 0, order.work("a")));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(pool.submit("b", 0, order.work("b")));
  EXPECT_TRUE(pool.submit("c", 0, order.work("c")));
  gate.release();
  order.wait_began(6);
  EXPECT_EQ(order.began(), (std::vector<std::string>{"a", "b", "c", "a", "b", "a"}));
}

TEST(FairPool, FullQueueRefusesWork) {
  Bench bench;
  FairPool pool({.threads = 1,
                 .in_flight_per_key_max = 1,
                 .waiting_per_key_max = 2,
                 .waiting_max = 3,
                 .bytes_max = 100});
  EXPECT_TRUE(pool.submit("gate", 0, bench.work("gate")));
  bench.wait_began(1);
  EXPECT_FALSE(pool.submit("a", 101, bench.work("a")));
  EXPECT_TRUE(pool.submit("a", 60, bench.work("a")));
  EXPECT_FALSE(pool.submit("b", 60, bench.work("b")));
  EXPECT_TRUE(pool.submit("a", 0, bench.work("a")));
  EXPECT_FALSE(pool.submit("a", 0, bench.work("a")));  // the queue of "a" is full
  EXPECT_TRUE(pool.submit("b", 0, bench.work("b")));
  EXPECT_FALSE(pool.submit("c", 0, bench.work("c")));  // all queues together are full
  bench.release();
  bench.wait_began(4);
}

TEST(FairPool, ThrowingWorkDoesNotStopThePool) {
  Bench bench;
  bench.release();
  FairPool pool({.threads = 1, .in_flight_per_key_max = 1});
  EXPECT_TRUE(pool.submit("a", 0, [] { throw std::runtime_error("no"); }));  // NOLINT
  EXPECT_TRUE(pool.submit("a", 0, bench.work("a")));
  bench.wait_began(1);
}

TEST(FairPool, PoolEndDropsWaitingWork) {
  const auto held = std::make_shared<int>(1);
  std::atomic<int> runs{0};
  const auto counted = [&] { return [held, &runs] { ++runs; }; };
  auto pool = std::make_unique<FairPool>(FairPool::Options{.threads = 1,
                                                           .in_flight_per_key_max = 1,
                                                           .waiting_per_key_max = 1'000'000,
                                                           .waiting_max = 1'000'000});
  // The pool has room, so it refuses work only after its end has begun. Until then its only thread
  // is busy.
  EXPECT_TRUE(pool->submit("a", 0, [&counted, &ending = *pool] {
    EXPECT_TRUE(
        eventually("the end of the pool began", [&] { return !ending.submit("a", 0, counted()); }));
  }));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(pool->submit("a", 0, counted()));
  pool.reset();
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace varda::gateway
