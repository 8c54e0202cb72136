#include "fiber.h"

#include <cstdint>
#include <sys/mman.h>
#include <utility>

#include "base/check.h"

#if defined(VARDA_SIM_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif

namespace varda::sim {
namespace {

// Enough for the deepest JSON that the product reads, even without optimisation.
constexpr std::size_t kStackBytes = 1u << 20;
constexpr std::size_t kGuardBytes = 4096;

}  // namespace

Fiber::Fiber() {
  stack_ = mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(stack_ != MAP_FAILED);
  CHECK(mprotect(stack_, kGuardBytes, PROT_NONE) == 0);  // an overflow ends the process
  CHECK(getcontext(&inside_) == 0);
  inside_.uc_stack.ss_sp = static_cast<char*>(stack_) + kGuardBytes;
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
              static_cast<unsigned int>(self >> 32), static_cast<unsigned int>(self & 0xffffffffu));
}

Fiber::~Fiber() { munmap(stack_, kStackBytes + kGuardBytes); }

void Fiber::start(std::function<void()> call) {
  CHECK(idle());
  call_ = std::move(call);
}

void Fiber::enter(unsigned int high, unsigned int low) {
  reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(high) << 32 | low)->loop();
}

void Fiber::loop() {
#if defined(VARDA_SIM_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, &outside_stack_, &outside_size_);
#endif
  while (true) {
    call_();
    call_ = nullptr;
    suspend();
  }
}

#if defined(VARDA_SIM_ASAN)

bool Fiber::resume() {
  CHECK(!idle());
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, static_cast<char*>(stack_) + kGuardBytes, kStackBytes);
  CHECK(swapcontext(&outside_, &inside_) == 0);
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
  return !idle();
}

void Fiber::suspend() {
  __sanitizer_start_switch_fiber(&fake_stack_, outside_stack_, outside_size_);
  CHECK(swapcontext(&inside_, &outside_) == 0);
  __sanitizer_finish_switch_fiber(fake_stack_, &outside_stack_, &outside_size_);
}

#else

bool Fiber::resume() {
  CHECK(!idle());
  if (_setjmp(jump_outside_) == 0) {
    if (begun_) _longjmp(jump_inside_, 1);
    begun_ = true;
    setcontext(&inside_);
  }
  return !idle();
}

void Fiber::suspend() {
  if (_setjmp(jump_inside_) == 0) _longjmp(jump_outside_, 1);
}

#endif

Fiber& FiberPool::take() {
  if (free_.empty()) {
    all_.push_back(std::make_unique<Fiber>());
    return *all_.back();
  }
  Fiber& fiber = *free_.back();
  free_.pop_back();
  return fiber;
}

}  // namespace varda::sim
