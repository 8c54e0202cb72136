// Work queue of keys: each at most once, never handed to two workers at a time, with back-off per key and delayed additions.
//
// QueueCore is the logic: no locks, no clock, no threads. WorkQueue is the thread-safe shell the workers wait on.
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
  double jitter = 0.1;  // of the delay, added
};

class QueueCore {
 public:
  explicit QueueCore(Backoff backoff, std::size_t keys_max = 1'000'000) : backoff_(backoff), keys_max_(keys_max) {}

  /// Ready now. A key being worked on becomes ready when its worker is done. False: the queue is full and the key is not kept.
  bool add(const ObjectKey& key, SteadyTime now);
  /// Ready at `when`, or earlier if something else asks for it. Of several times the earliest stays.
  bool add_at(const ObjectKey& key, SteadyTime when);
  /// Ready after the key's back-off, which doubles until forget(). `random` in [0, 1). Returns the delay.
  Duration retry(const ObjectKey& key, SteadyTime now, double random);
  void forget(const ObjectKey& key) { failures_.erase(key); }

  struct Item {
    ObjectKey key;
    SteadyTime since;  // when it became ready
  };
  /// The oldest ready key, which is then being worked on; nothing: none is ready at `now`.
  std::optional<Item> take(SteadyTime now);
  /// The worker has finished with the key.
  void done(const ObjectKey& key, SteadyTime now);

  /// When the next delayed key becomes ready; nothing: there is none.
  std::optional<SteadyTime> next() const;
  std::size_t ready() const { return order_.size(); }
  std::size_t delayed() const { return due_.size(); }
  std::size_t working() const { return working_.size(); }
  int failures(const ObjectKey& key) const;
  /// How often a key came in that was not in yet, at once or when its delay was over: what workqueue_adds_total counts.
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
  std::set<ObjectKey> again_;  // asked for while being worked on
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
  /// Waits for a key; nothing: shut down.
  std::optional<ObjectKey> take();
  /// Without waiting; nothing: none is ready, or shut down.
  std::optional<ObjectKey> try_take();
  /// When try_take() has a key: in the past, if one is ready. Nothing: not before somebody adds one.
  std::optional<SteadyTime> due() const;
  /// After every key taken.
  void done(const ObjectKey& key);
  /// Wakes everybody waiting; take() returns nothing from now on.
  void shut_down();
  std::size_t size() const;  // ready now
  int failures(const ObjectKey& key) const;
  /// Nothing ready, nothing being worked on (delayed keys do not count). For tests.
  bool idle() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the gauges of a registry, weakly
};

}  // namespace varda::runtime
