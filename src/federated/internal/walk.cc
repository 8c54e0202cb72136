#include "federated/internal/walk.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace varda::federated {
namespace {

constexpr std::size_t kStripsWanted = 64;          // enough to share among threads
constexpr std::size_t kStripBytesMax = 32u << 20;  // of all updates

std::size_t rounded_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Hands out strips in order, and lets the threads commit in the same order.
class Schedule {
 public:
  Schedule(const Context& ctx, std::size_t strips) : ctx_(ctx), strips_(strips) {}

  /// The next strip, or strips(): all are handed out, or the context is done.
  std::size_t next() {
    if (ctx_.done()) {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      changed_.notify_all();
    }
    if (stopped_) return strips_;
    return std::min(next_.fetch_add(1), strips_);
  }
  void commit(std::size_t strip, StripWorker& worker) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return committed_ == strip || stopped_; });
    if (stopped_) return;
    worker.commit();
    ++committed_;
    changed_.notify_all();
  }
  Status status() const {
    if (committed_ == strips_) return {};
    TRY_VOID(ctx_.check());
    return Error(Code::kCancelled, "stopped");
  }
  std::size_t strips() const { return strips_; }

 private:
  const Context& ctx_;
  const std::size_t strips_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t committed_ = 0;
};

}  // namespace

Walk Walk::over(std::size_t size, std::size_t block, std::size_t updates, std::size_t threads) {
  Walk out;
  out.size = size;
  out.block = block;
  const std::size_t limit =
      std::max(kStripBytesMax / sizeof(float) / std::max<std::size_t>(updates, 1), block) / block *
      block;
  out.strip = std::min(rounded_up(size / kStripsWanted + 1, block), limit);
  out.threads = std::max<std::size_t>(threads, 1);
  return out;
}

Status walk(const Context& ctx, const Walk& plan,
            const std::function<std::unique_ptr<StripWorker>()>& make_worker) {
  Schedule schedule(ctx, (plan.size + plan.strip - 1) / plan.strip);
  const auto run = [&] {
    const std::unique_ptr<StripWorker> worker = make_worker();
    for (std::size_t strip; (strip = schedule.next()) < schedule.strips();) {
      const std::size_t begin = strip * plan.strip, end = std::min(begin + plan.strip, plan.size);
      for (std::size_t first = begin; first < end; first += plan.block)
        worker->block(first, std::min(plan.block, end - first));
      schedule.commit(strip, *worker);
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < std::min(plan.threads, schedule.strips()); ++i)
    threads.emplace_back(run);
  run();
  threads.clear();  // joins
  return schedule.status();
}

}  // namespace varda::federated
