#include "runtime/queue.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "base/testing/eventually.h"

namespace varda::runtime {
namespace queue_test {

using std::chrono::hours, std::chrono::milliseconds, std::chrono::seconds;

const ObjectKey kA{"n", "a"}, kB{"n", "b"}, kC{"n", "c"};
const SteadyTime kStart = SteadyTime(hours(1000));

/// The result of take() as text: "-" if empty.
std::string taken(QueueCore& queue, SteadyTime now) {
  const auto item = queue.take(now);
  return item ? item->key.name : "-";
}

TEST(QueueCore, KeysAreReturnedOnceAndInOrder) {
  QueueCore queue({});
  for (const ObjectKey& key : {kB, kA, kB, kC, kA}) EXPECT_TRUE(queue.add(key, kStart));
  EXPECT_EQ(queue.ready(), 3u);
  EXPECT_EQ(taken(queue, kStart), "b");
  EXPECT_EQ(taken(queue, kStart), "a");
  EXPECT_EQ(taken(queue, kStart), "c");
  EXPECT_EQ(taken(queue, kStart), "-");
}

TEST(QueueCore, KeyAddedDuringWorkIsReturnedAfterDone) {
  QueueCore queue({});
  queue.add(kA, kStart);
  EXPECT_EQ(taken(queue, kStart), "a");
  queue.add(kA, kStart);
  queue.add(kA, kStart);
  EXPECT_EQ(taken(queue, kStart), "-") << "two workers would have it";
  queue.done(kA, kStart);
  EXPECT_EQ(taken(queue, kStart), "a");
  queue.done(kA, kStart);
  EXPECT_EQ(taken(queue, kStart), "-");
}

TEST(QueueCore, DelayedKeyIsReturnedAtItsEarliestTime) {
  QueueCore queue({});
  queue.add_at(kA, kStart + seconds(10));
  queue.add_at(kA, kStart + seconds(5));
  queue.add_at(kA, kStart + seconds(7));
  queue.add_at(kB, kStart + seconds(6));
  EXPECT_EQ(queue.next(), kStart + seconds(5));
  EXPECT_EQ(taken(queue, kStart + milliseconds(4999)), "-");
  EXPECT_EQ(taken(queue, kStart + seconds(6)), "a");
  EXPECT_EQ(taken(queue, kStart + seconds(6)), "b");
  EXPECT_EQ(queue.next(), std::nullopt);
}

TEST(QueueCore, ImmediateAdditionCancelsTheDelay) {
  QueueCore queue({});
  queue.add_at(kA, kStart + seconds(10));
  queue.add(kA, kStart);
  EXPECT_EQ(taken(queue, kStart), "a");
  queue.done(kA, kStart);
  EXPECT_EQ(taken(queue, kStart + hours(1)), "-");
}

TEST(QueueCore, ADelayThatEndsDuringWorkIsNotLost) {
  QueueCore queue({});
  queue.add(kA, kStart);
  EXPECT_EQ(taken(queue, kStart), "a");
  queue.add_at(kA, kStart + seconds(1));
  EXPECT_EQ(taken(queue, kStart + seconds(2)), "-");
  queue.done(kA, kStart + seconds(3));
  EXPECT_EQ(taken(queue, kStart + seconds(3)), "a");
}

TEST(QueueCore, BackoffDoublesUpToMaximumAndForgetResetsIt) {
  QueueCore queue({.first = milliseconds(10), .max = milliseconds(100), .jitter = 0.1});
  SteadyTime now = kStart;
  for (const int expected : {10, 20, 40, 80, 100, 100}) {
    EXPECT_EQ(queue.retry(kA, now, 0), Duration(milliseconds(expected)));
    now += seconds(1);
    EXPECT_EQ(taken(queue, now), "a");
    queue.done(kA, now);
  }
  EXPECT_EQ(queue.failures(kA), 6);
  EXPECT_EQ(queue.failures(kB), 0);
  queue.forget(kA);
  EXPECT_EQ(queue.retry(kA, now, 0), Duration(milliseconds(10)));
  for (int i = 0; i < 200; ++i) EXPECT_LE(queue.retry(kB, now, 0.999), Duration(milliseconds(110)));
}

TEST(QueueCore, AFullQueueRefusesNewKeysOnly) {
  QueueCore queue({}, 2);
  EXPECT_TRUE(queue.add(kA, kStart));
  EXPECT_TRUE(queue.add(kB, kStart));
  EXPECT_FALSE(queue.add(kC, kStart));
  EXPECT_TRUE(queue.add(kA, kStart));
}

TEST(WorkQueue, WorkersNeverShareAKeyAndLoseNone) {
  WorkQueue queue({.name = "test"});
  constexpr std::size_t kKeys = 5;
  // `added` counts additions of a key; `seen` is the count at the start of the key's last work.
  std::array<std::atomic<int>, kKeys> busy{}, added{}, seen{};
  std::atomic<bool> doubled{false};
  const auto all_seen = [&] { return std::equal(seen.begin(), seen.end(), added.begin()); };
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < 4; ++i) {
      workers.emplace_back([&] {
        while (const auto key = queue.take()) {
          const auto k = static_cast<std::size_t>(std::stoi(key->name));
          if (busy[k]++ != 0) doubled = true;
          seen[k] = added[k].load();
          --busy[k];
          queue.done(*key);
        }
      });
    }
    bool lost = false;
    for (int round = 0; round < 100 && !lost; ++round) {
      // The later additions of a key meet its work.
      for (std::size_t i = 0; i < 10 * kKeys; ++i) {
        ++added[i % kKeys];
        queue.add({"", std::to_string(i % kKeys)});
      }
      lost = !eventually("the queue is idle", [&] { return queue.idle(); }) || !all_seen();
    }
    EXPECT_FALSE(lost);
    for (std::size_t k = 0; k < kKeys; ++k) {
      ++added[k];
      queue.add_after({"", std::to_string(k)}, milliseconds(1));
    }
    EXPECT_TRUE(eventually("delayed keys are worked on", all_seen));
    queue.shut_down();
  }
  EXPECT_FALSE(doubled);
}

TEST(WorkQueue, QueueExportsMetrics) {
  metrics::Registry registry;
  WorkQueue queue({.name = "q", .metrics = &registry});
  queue.add(kA);
  queue.add(kA);
  queue.add(kB);
  EXPECT_NE(registry.text().find("workqueue_depth{name=\"q\",controller=\"q\"} 2"),
            std::string::npos)
      << registry.text();
  ASSERT_EQ(queue.take(), kA);
  queue.retry(kA);
  queue.done(kA);
  const std::string text = registry.text();
  for (const char* line : {"workqueue_adds_total{name=\"q\",controller=\"q\"} 2",
                           "workqueue_retries_total{name=\"q\",controller=\"q\"} 1",
                           "workqueue_work_duration_seconds_count{name=\"q\",controller=\"q\"} 1",
                           "workqueue_queue_duration_seconds_count{name=\"q\",controller=\"q\"} 1",
                           "workqueue_unfinished_work_seconds{name=\"q\",controller=\"q\"} 0"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

TEST(QueueCore, AddedCounterCountsEachQueuedKeyOnce) {
  QueueCore queue({});
  queue.add(kA, kStart);
  queue.add(kA, kStart);
  EXPECT_EQ(queue.added(), 1u);
  queue.add_at(kB, kStart + milliseconds(5));
  EXPECT_EQ(queue.added(), 1u) << "it is not in yet";
  ASSERT_EQ(queue.take(kStart)->key, kA);
  queue.add(kA, kStart);
  queue.add(kA, kStart);
  EXPECT_EQ(queue.added(), 2u) << "once for while it is being worked on";
  queue.done(kA, kStart);
  EXPECT_EQ(queue.added(), 2u) << "it was counted when it was asked for";
  ASSERT_EQ(queue.take(kStart + milliseconds(5))->key, kA);
  EXPECT_EQ(queue.added(), 3u) << "the other has come due";
}

/// Shows that take() has begun: it reads the clock under the queue's lock, which it then holds
/// until it waits.
class AskedClock final : public Clock {
 public:
  SteadyTime now() const override {
    asked = true;
    return kStart;
  }
  WallTime wall() const override { return {}; }
  mutable std::atomic<bool> asked{false};
};

TEST(WorkQueue, ShutDownWakesAWaitingWorker) {
  AskedClock clock;
  WorkQueue queue({.name = "test", .clock = &clock});
  std::jthread waiter([&] { EXPECT_EQ(queue.take(), std::nullopt); });
  EXPECT_TRUE(eventually("the worker takes", [&] { return clock.asked.load(); }));
  queue.shut_down();  // gets the lock only while the worker waits
}

}  // namespace queue_test
}  // namespace varda::runtime
