#include <algorithm>

#include "base/caught.h"
#include "base/check.h"
#include "samples/samples.h"

namespace varda::samples {

Loader::Loader(const Dataset& dataset, std::vector<std::size_t> order, std::size_t batch,
               Augment augment, std::uint64_t seed, std::size_t first_batch)
    : dataset_(dataset), order_(std::move(order)), batch_(batch), augment_(augment), seed_(seed) {
  CHECK(batch_ > 0);
  next_ = first_batch > order_.size() / batch_ ? order_.size() : first_batch * batch_;
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Loader::~Loader() = default;  // the thread's destructor requests the stop and joins

void Loader::run(const std::stop_token& stop) {
  const Context ctx(stop);
  for (;;) {
    {
      const MutexLock lock(mutex_);
      while (ready_.size() >= kAhead && !stop.stop_requested()) changed_.wait(mutex_, stop);
      if (next_ >= order_.size()) ended_ = true;
      if (ended_ || stop.stop_requested()) break;
    }
    const std::size_t count = std::min(batch_, order_.size() - next_);
    Result<Batch> batch = Batch();
    try {
      batch = dataset_.read_until(ctx, {order_.data() + next_, count}, augment_, seed_, memory_);
    } catch (...) {
      batch = caught_error();
    }
    next_ += count;
    const MutexLock lock(mutex_);
    ended_ = !batch.ok();
    ready_.push_back(std::move(batch));
    changed_.notify_all();
    if (ended_) return;
  }
  changed_.notify_all();
}

Result<std::optional<Batch>> Loader::next(const Context& ctx) {
  if (failed_) return *failed_;
  const MutexLock lock(mutex_);
  while (ready_.empty() && !ended_ && !ctx.done()) {
    if (ctx.deadline()) {
      changed_.wait_until(mutex_, ctx.stop_token(), *ctx.deadline());
    } else {
      changed_.wait(mutex_, ctx.stop_token());
    }
  }
  if (!ready_.empty()) {
    Result<Batch> batch = std::move(ready_.front());
    ready_.erase(ready_.begin());
    changed_.notify_all();
    if (!batch.ok()) {
      failed_ = batch.error();
      return std::move(batch).error();
    }
    return std::optional<Batch>(std::move(batch).value());
  }
  TRY_VOID(ctx.check());
  return std::optional<Batch>();
}

}  // namespace varda::samples
