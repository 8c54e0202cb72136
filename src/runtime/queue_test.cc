#include "runtime/queue.h"

#include <atomic>
#include <gtest/gtest.h>
#include <map>
#include <thread>

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
  constexpr int kKeys = 5, kRounds = 200;
  std::map<std::string, std::atomic<int>> busy, work;
  for (int i = 0; i < kKeys; ++i) busy[std::to_string(i)] = work[std::to_string(i)] = 0;
  std::atomic<bool> doubled{false};
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < 4; ++i) {
      workers.emplace_back([&] {
        while (const auto key = queue.take()) {
          if (busy.at(key->name)++ != 0) doubled = true;
          ++work.at(key->name);
          --busy.at(key->name);
          queue.done(*key);
        }
      });
    }
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kKeys; ++i) queue.add({"", std::to_string(i)});
    }
    for (int i = 0; i < kKeys; ++i) queue.add_after({"", std::to_string(i)}, milliseconds(1));
    EXPECT_TRUE(eventually("the queue is idle", [&] { return queue.idle(); }));
    queue.shut_down();
  }
  EXPECT_FALSE(doubled);
  for (const auto& [key, count] : work) EXPECT_GE(count, 1) << key;
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

TEST(WorkQueue, ShutDownReleasesAWorker) {
  WorkQueue queue({.name = "test"});
  std::jthread waiter([&] { EXPECT_EQ(queue.take(), std::nullopt); });
  queue.shut_down();
}

}  // namespace queue_test
}  // namespace varda::runtime
