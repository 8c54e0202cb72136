// Mutex, MutexLock, CondVar: std types with annotations for clang's -Wthread-safety.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#if defined(__clang__)
#define VARDA_TS(x) __attribute__((x))
#else
#define VARDA_TS(x)
#endif

#define CAPABILITY(name) VARDA_TS(capability(name))
#define SCOPED_CAPABILITY VARDA_TS(scoped_lockable)
#define GUARDED_BY(mutex) VARDA_TS(guarded_by(mutex))
#define REQUIRES(...) VARDA_TS(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) VARDA_TS(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) VARDA_TS(acquire_capability(__VA_ARGS__))
#define RELEASE(...) VARDA_TS(release_capability(__VA_ARGS__))

namespace varda {

class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// Waits need the mutex, and hold it again on return. A wait may return early, so callers wait in a
/// loop:
///
///   const MutexLock lock(mutex_);
///   while (queue_.empty() && !ctx.stopped()) changed_.wait(mutex_, ctx.stop_token());
///
/// clang checks the condition of such a loop, but not a predicate that is a lambda.
class CondVar {
 public:
  void wait(Mutex& mutex) REQUIRES(mutex) { condition_.wait(mutex.mutex_); }
  /// Also returns after a stop request, at once if it was made before.
  void wait(Mutex& mutex, const std::stop_token& stop) REQUIRES(mutex) {
    condition_.wait(mutex.mutex_, stop, Once{});
  }
  /// False: `until` has passed.
  bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point until) REQUIRES(mutex) {
    return condition_.wait_until(mutex.mutex_, until) == std::cv_status::no_timeout;
  }
  /// False: `until` has passed, or a stop was requested.
  bool wait_until(Mutex& mutex, const std::stop_token& stop,
                  std::chrono::steady_clock::time_point until) REQUIRES(mutex) {
    condition_.wait_until(mutex.mutex_, stop, until, Once{});
    return !stop.stop_requested() && std::chrono::steady_clock::now() < until;
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  /// A predicate that is false once: the standard waits with a stop token need one.
  struct Once {
    bool waited = false;
    bool operator()() { return std::exchange(waited, true); }
  };
  std::condition_variable_any condition_;  // the plain type has no waits with a stop token
};

}  // namespace varda
