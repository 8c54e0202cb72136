// Fiber: a call with a separate stack that can suspend and resume, all in one thread. Blocking
// product code thus runs unchanged. While it waits for an answer, the simulator decides which fiber
// continues.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <functional>
#include <memory>
#include <ucontext.h>
#include <vector>

// g++ has a macro for AddressSanitizer, clang a feature.
#if defined(__SANITIZE_ADDRESS__)
#define VARDA_SIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VARDA_SIM_ASAN 1
#endif
#endif

namespace varda::sim {

/// Not thread-safe: all fibers of a process belong to one thread.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Sets the call for the next resume(). The fiber is idle.
  void start(std::function<void()> call);
  /// Runs until the call suspends or returns. False: it has returned, and the fiber is idle again.
  bool resume();
  /// Within a call: returns to the caller of resume().
  void suspend();
  bool idle() const { return !call_; }

 private:
  static void enter(unsigned int high, unsigned int low);
  void loop();

  std::function<void()> call_;
  void* stack_ = nullptr;
  bool begun_ = false;
#if defined(VARDA_SIM_ASAN)
  ucontext_t inside_{}, outside_{};
  void* fake_stack_ = nullptr;
  const void* outside_stack_ = nullptr;
  std::size_t outside_size_ = 0;
#else
  // Only the first entry goes through ucontext: swapcontext() costs two system calls.
  ucontext_t inside_{}, outside_{};
  std::jmp_buf jump_inside_, jump_outside_;
#endif
};

/// Reuses fibers, so that their stacks are mapped only once.
class FiberPool {
 public:
  Fiber& take();
  void give_back(Fiber& fiber) { free_.push_back(&fiber); }

 private:
  std::vector<std::unique_ptr<Fiber>> all_;
  std::vector<Fiber*> free_;
};

}  // namespace varda::sim
