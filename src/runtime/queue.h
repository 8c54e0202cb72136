// Work queue of keys. Each key is queued at most once and never handed to two workers at a time.
// Supports back-off per key and delayed additions.
//
// QueueCore is the logic, without locks, clock or threads. WorkQueue is the thread-safe shell on
// which workers wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/context.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "meta/object.h"

namespace varda::runtime {

using meta::ObjectKey;

struct Backoff {
  std::chrono::milliseconds first{10};
  std::chrono::milliseconds max{120'000};
  double jitter = 0.1;  // fraction of the delay, added
};

class QueueCore {
 public:
  explicit QueueCore(Backoff backoff, std::size_t keys_max = 1'000'000)
      : backoff_(backoff), keys_max_(keys_max) {}

  /// Makes the key ready now. A key in progress becomes ready when its worker is done. False: the
  /// queue is full, and the key is dropped.
  bool add(const ObjectKey& key, SteadyTime now);
  /// Makes the key ready at `when`; the earliest of several times counts.
  bool add_at(const ObjectKey& key, SteadyTime when);
  /// Makes the key ready after its back-off, which doubles until forget(). `random` is in [0, 1).
  /// Returns the delay.
  Duration retry(const ObjectKey& key, SteadyTime now, double random);
  void forget(const ObjectKey& key) { failures_.erase(key); }

  struct Item {
    ObjectKey key;
    SteadyTime since;  // the time at which it became ready
  };
  /// Takes the oldest ready key and marks it in progress; absent: no key is ready at `now`.
  std::optional<Item> take(SteadyTime now);
  /// The worker has finished with the key.
  void done(const ObjectKey& key, SteadyTime now);

  /// The time at which the next delayed key becomes ready; absent: no key is delayed.
  std::optional<SteadyTime> next() const;
  std::size_t ready() const { return order_.size(); }
  std::size_t delayed() const { return due_.size(); }
  std::size_t working() const { return working_.size(); }
  int failures(const ObjectKey& key) const;
  /// The number of times a key entered the queue, at once or after a delay, as in
  /// workqueue_adds_total.
  std::uint64_t added() const { return added_; }

 private:
  bool enter(const ObjectKey& key, SteadyTime now);
  void promote(SteadyTime now);

  Backoff backoff_;
  std::size_t keys_max_;
  std::uint64_t sequence_ = 0, added_ = 0;
  std::map<std::uint64_t, Item> order_;       // ready, oldest first
  std::map<ObjectKey, std::uint64_t> ready_;  // key -> place in order_
  std::set<ObjectKey> working_;
  std::set<ObjectKey> again_;  // added while in progress
  std::map<ObjectKey, SteadyTime> due_;
  std::set<std::pair<SteadyTime, ObjectKey>> times_;  // due_, by time
  std::map<ObjectKey, int> failures_;
};

/// Thread-safe. Metrics under the names of client-go's workqueue.
class WorkQueue {
 public:
  struct Options {
    std::string name;
    Backoff backoff;
    const Clock* clock = nullptr;  // null: the machine's
    Rng* rng = nullptr;            // null: the machine's; jitter only
    metrics::Registry* metrics = nullptr;
  };
  explicit WorkQueue(Options options);
  ~WorkQueue();

  void add(const ObjectKey& key);
  void add_after(const ObjectKey& key, Duration delay);
  void retry(const ObjectKey& key);
  void forget(const ObjectKey& key);
  /// Waits for a key; absent: the queue is shut down.
  std::optional<ObjectKey> take();
  /// Does not wait; absent: no key is ready, or the queue is shut down.
  std::optional<ObjectKey> try_take();
  /// The time at which try_take() has a key, in the past if one is ready. Absent: only after
  /// another addition.
  std::optional<SteadyTime> due() const;
  /// Call it for every key taken.
  void done(const ObjectKey& key);
  /// Wakes all waiting threads; take() returns nothing from now on.
  void shut_down();
  std::size_t size() const;  // ready now
  int failures(const ObjectKey& key) const;
  /// No key is ready or in progress (delayed keys do not count). For tests.
  bool idle() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // a registry's gauges hold it weakly
};

}  // namespace varda::runtime
