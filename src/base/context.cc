#include "base/context.h"

#include <condition_variable>
#include <mutex>

namespace varda {
namespace {

class SystemClock final : public Clock {
 public:
  SteadyTime now() const override { return std::chrono::steady_clock::now(); }
  WallTime wall() const override { return std::chrono::system_clock::now(); }
};

}  // namespace

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

Status Context::check() const {
  if (stopped()) return Error(Code::kCancelled, "stop requested");
  if (expired()) return Error(Code::kTimeout, "deadline exceeded");
  return {};
}

Status Context::sleep_until(SteadyTime until) const {
  if (deadline_ && *deadline_ < until) until = *deadline_;
  std::mutex mutex;
  std::condition_variable_any woken;
  std::unique_lock lock(mutex);
  woken.wait_until(lock, stop_, until, [] { return false; });
  return check();
}

}  // namespace varda
