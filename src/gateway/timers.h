// Deadlines of many streams on one thread.
#pragma once

#include <map>
#include <thread>
#include <unordered_map>

#include "base/clock.h"
#include "base/mutex.h"

namespace varda::gateway {

/// Thread-safe. Late by up to a twentieth of a second, so that what ends at nearly the same time wakes the thread once.
class Timers {
 public:
  /// Called on the timers' thread with their lock held, once or (after all()) more often: it only posts.
  class Timed {
   public:
    virtual void due() = 0;

   protected:
    ~Timed() = default;
  };

  Timers();
  ~Timers();
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;

  void add(SteadyTime when, Timed& timed) EXCLUDES(mutex_);
  /// After it nobody calls `timed`.
  void remove(Timed& timed) EXCLUDES(mutex_);
  /// Tells everybody now.
  void all() EXCLUDES(mutex_);

 private:
  using Order = std::multimap<SteadyTime, Timed*>;
  void run();

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  Order order_ GUARDED_BY(mutex_);                                         // not told yet
  std::unordered_map<Timed*, Order::iterator> places_ GUARDED_BY(mutex_);  // everybody; order_.end(): told
  std::thread thread_;
};

}  // namespace varda::gateway
