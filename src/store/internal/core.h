// State shared by both stores: current values, event history and watchers, in memory.
//
// Only one thread writes at a time (the committer). Any thread may read and watch.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "store/store.h"

namespace varda::store::internal {

using EventPtr = std::shared_ptr<const Event>;

/// State loaded from disk.
struct Loaded {
  std::vector<Entry> entries;
  std::vector<EventPtr> events;  // in revision order, all after `compacted`
  Revision revision = 0;
  Revision compacted = 0;
};

class Core;

/// One watcher's queue. Lock order: Core::mutex_, then mutex_. wake_mutex_ is never held together
/// with either.
class WatchState {
 public:
  WatchState(std::string prefix, Revision after, std::size_t limit)
      : prefix_(std::move(prefix)), after_(after), limit_(limit) {}

  bool wants(const Event& event) const {
    return event.entry.modified > after_ && event.entry.key.starts_with(prefix_);
  }
  Revision after() const { return after_; }
  /// Queues past events; these do not count against the limit.
  void start_with(std::vector<EventPtr> backlog);
  /// False if the queue is full: the queue is dropped and the watcher closed.
  bool push(const EventPtr& event);
  void close();
  void wake();

  Result<std::vector<Event>> poll(std::size_t max);
  /// The revision before the first queued event; nullopt if the queue is empty.
  std::optional<Revision> before_first();
  void on_ready(std::function<void()> wake);
  void forget_wake();
  Status wait(const Context& ctx);

 private:
  bool something() const REQUIRES(mutex_) { return !queue_.empty() || lagging_ || closing_; }

  const std::string prefix_;
  const Revision after_;
  std::size_t limit_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<EventPtr> queue_ GUARDED_BY(mutex_);
  bool lagging_ GUARDED_BY(mutex_) = false;
  bool closing_ GUARDED_BY(mutex_) = false;
  Mutex wake_mutex_;
  std::function<void()> wake_ GUARDED_BY(wake_mutex_);
};

/// Thread-safe. A watch keeps it alive after the store is destroyed.
class Core {
 public:
  Core(const Options& options, Loaded loaded);

  std::optional<Entry> get(std::string_view key) const;
  Result<Page> list(const ListOptions& options) const;
  Result<std::shared_ptr<WatchState>> watch(std::string prefix, Revision after);
  void unwatch(const std::shared_ptr<WatchState>& state);
  Revision progress(WatchState& state) const;
  Revision revision() const;
  Revision oldest() const;
  struct History {
    std::size_t events = 0, bytes = 0,
                compactions = 0;  // compactions: times that events were dropped
  };
  History history() const;
  Status check_compaction(Revision revision) const;
  void compact(Revision revision);

  /// Makes committed events visible and hands them to watchers. Committer only.
  void apply(const std::vector<EventPtr>& events);
  void close();

 private:
  void trim() REQUIRES(mutex_);
  void drop_oldest() REQUIRES(mutex_);
  std::map<std::string, std::optional<Entry>> undo(const ListOptions& options) const
      REQUIRES(mutex_);

  const std::size_t history_events_max_, history_bytes_max_, watch_queue_events_max_;
  metrics::Counter* closed_watchers_ = nullptr;
  mutable Mutex mutex_;
  std::map<std::string, Entry, std::less<>> entries_ GUARDED_BY(mutex_);
  std::deque<EventPtr> history_ GUARDED_BY(mutex_);
  std::size_t history_bytes_ GUARDED_BY(mutex_) = 0;
  std::size_t compactions_ GUARDED_BY(mutex_) = 0;
  Revision revision_ GUARDED_BY(mutex_) = 0;
  Revision compacted_ GUARDED_BY(mutex_) = 0;
  bool closed_ GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<WatchState>> watchers_ GUARDED_BY(mutex_);
};

}  // namespace varda::store::internal
