// Timers: deadlines of many streams on one thread.
#pragma once

#include <map>
#include <thread>
#include <unordered_map>

#include "base/clock.h"
#include "base/mutex.h"

namespace varda::net {

/// Thread-safe; the thread starts with the first deadline. Up to 50 ms late, so that deadlines
/// close together wake the thread once.
class Timers {
 public:
  /// Called with the timers' lock held, on their thread or by all(), once or more often. Must only
  /// post.
  class Timed {
   public:
    virtual void due() = 0;

   protected:
    ~Timed() = default;
  };

  Timers() = default;
  ~Timers();
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;

  /// Replaces an earlier deadline of `timed`.
  void add(SteadyTime when, Timed& timed) EXCLUDES(mutex_);
  /// No deadline: only all() reaches it.
  void add(Timed& timed) EXCLUDES(mutex_);
  /// After it returns, due() of `timed` is never called.
  void remove(Timed& timed) EXCLUDES(mutex_);
  /// Calls due() of every `timed` now.
  void all() EXCLUDES(mutex_);

 private:
  using Order = std::multimap<SteadyTime, Timed*>;
  void run();

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  Order order_ GUARDED_BY(mutex_);  // not called yet
  std::unordered_map<Timed*, Order::iterator> places_
      GUARDED_BY(mutex_);  // all; order_.end(): called
  std::thread thread_ GUARDED_BY(mutex_);
};

}  // namespace varda::net
