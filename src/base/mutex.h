// Mutex, MutexLock, CondVar: std types with annotations for clang's -Wthread-safety.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

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
#define NO_THREAD_SAFETY_ANALYSIS VARDA_TS(no_thread_safety_analysis)

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

/// Call waits with the mutex held; it is held again on return. Wake-ups may be spurious: wait in a
/// loop.
class CondVar {
 public:
  void wait(Mutex& mutex) REQUIRES(mutex) NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  /// False: `until` has passed.
  bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point until)
      REQUIRES(mutex) NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const auto status = condition_.wait_until(lock, until);
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace varda
