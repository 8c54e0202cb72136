#include "runtime/queue.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"

namespace varda::runtime {

bool QueueCore::add(const ObjectKey& key, SteadyTime now) {
  if (working_.contains(key)) {
    added_ += again_.insert(key).second;
    return true;
  }
  if (ready_.contains(key)) return true;
  if (!enter(key, now)) return false;
  ++added_;
  return true;
}

bool QueueCore::enter(const ObjectKey& key, SteadyTime now) {
  if (ready_.size() >= keys_max_) return false;
  // A delayed key becomes ready now.
  if (const auto due = due_.find(key); due != due_.end()) {
    times_.erase({due->second, key});
    due_.erase(due);
  }
  ready_.emplace(key, sequence_);
  order_.emplace(sequence_, Item{key, now});
  ++sequence_;
  return true;
}

bool QueueCore::add_at(const ObjectKey& key, SteadyTime when) {
  if (ready_.contains(key)) return true;
  const auto due = due_.find(key);
  if (due == due_.end()) {
    if (due_.size() >= keys_max_) return false;
    due_.emplace(key, when);
  } else {
    if (due->second <= when) return true;
    times_.erase({due->second, key});
    due->second = when;
  }
  times_.emplace(when, key);
  return true;
}

Duration QueueCore::retry(const ObjectKey& key, SteadyTime now, double random) {
  const int failures = failures_[key]++;
  const double first = std::chrono::duration<double>(backoff_.first).count();
  const double max = std::chrono::duration<double>(backoff_.max).count();
  // 2^60 first delays exceed every maximum.
  const double delay = std::min(max, first * std::pow(2.0, std::min(failures, 60)));
  const auto jittered = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(delay * (1 + backoff_.jitter * random)));
  add_at(key, now + jittered);
  return jittered;
}

void QueueCore::promote(SteadyTime now) {
  while (!times_.empty() && times_.begin()->first <= now) {
    const ObjectKey key = times_.begin()->second;
    times_.erase(times_.begin());
    due_.erase(key);
    add(key, now);
  }
}

std::optional<QueueCore::Item> QueueCore::take(SteadyTime now) {
  promote(now);
  if (order_.empty()) return std::nullopt;
  Item item = std::move(order_.begin()->second);
  order_.erase(order_.begin());
  ready_.erase(item.key);
  working_.insert(item.key);
  return item;
}

void QueueCore::done(const ObjectKey& key, SteadyTime now) {
  working_.erase(key);
  if (again_.erase(key) > 0) enter(key, now);
}

std::optional<SteadyTime> QueueCore::next() const {
  if (times_.empty()) return std::nullopt;
  return times_.begin()->first;
}

int QueueCore::failures(const ObjectKey& key) const {
  const auto found = failures_.find(key);
  return found == failures_.end() ? 0 : found->second;
}

struct WorkQueue::Impl {
  explicit Impl(Options opts)
      : options(std::move(opts)),
        clock(options.clock ? *options.clock : system_clock()),
        rng(options.rng ? *options.rng : system_rng()),
        core(options.backoff) {
    if (!options.metrics) return;
    metrics::Registry& registry = *options.metrics;
    const metrics::Labels labels{{"name", options.name}, {"controller", options.name}};
    const std::vector<double> bounds{1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3,
                                     1e-2, 0.1,  1,    10,   100,  1000};
    depth = &registry.gauge("workqueue_depth", "Current depth of workqueue", labels);
    adds = &registry.counter("workqueue_adds_total", "Total number of adds handled by workqueue",
                             labels);
    retries = &registry.counter("workqueue_retries_total",
                                "Total number of retries handled by workqueue", labels);
    waited = &registry.histogram(
        "workqueue_queue_duration_seconds",
        "How long in seconds an item stays in workqueue before being requested", bounds, labels);
    worked = &registry.histogram("workqueue_work_duration_seconds",
                                 "How long in seconds processing an item from workqueue takes.",
                                 bounds, labels);
  }

  void added() REQUIRES(mutex) {
    if (adds) adds->add(static_cast<double>(core.added() - counted));
    counted = core.added();
    if (depth) depth->set(static_cast<double>(core.ready()));
  }

  std::optional<ObjectKey> take() REQUIRES(mutex) {
    const SteadyTime now = clock.now();
    auto item = core.take(now);
    added();
    if (!item) return std::nullopt;
    if (waited) waited->observe(std::chrono::duration<double>(now - item->since).count());
    begun[item->key] = now;
    // One wake-up may find several due keys, so the next worker is woken here.
    if (core.ready() > 0) changed.notify_one();
    return std::move(item->key);
  }

  const Options options;
  const Clock& clock;
  Rng& rng;
  metrics::Gauge* depth = nullptr;
  metrics::Counter* adds = nullptr;
  metrics::Counter* retries = nullptr;
  metrics::Histogram* waited = nullptr;
  metrics::Histogram* worked = nullptr;

  mutable Mutex mutex;
  CondVar changed;
  QueueCore core GUARDED_BY(mutex);
  std::uint64_t counted GUARDED_BY(mutex) = 0;  // part of core.added() already in the metric
  std::map<ObjectKey, SteadyTime> begun GUARDED_BY(mutex);
  bool shut GUARDED_BY(mutex) = false;
};

WorkQueue::WorkQueue(Options options) : impl_(std::make_shared<Impl>(std::move(options))) {
  if (!impl_->options.metrics) return;
  // A registry may outlive the queue; then it reads zero.
  const auto read = [weak = std::weak_ptr<Impl>(impl_)](bool sum) {
    double seconds = 0;
    if (const auto impl = weak.lock()) {
      MutexLock lock(impl->mutex);
      for (const auto& [key, begun] : impl->begun) {
        const double running = std::chrono::duration<double>(impl->clock.now() - begun).count();
        seconds = sum ? seconds + running : std::max(seconds, running);
      }
    }
    return seconds;
  };
  const metrics::Labels labels{{"name", impl_->options.name}, {"controller", impl_->options.name}};
  impl_->options.metrics->gauge_from("workqueue_unfinished_work_seconds",
                                     "Seconds of work in progress that is not yet observed.",
                                     labels, [read] { return read(true); });
  impl_->options.metrics->gauge_from("workqueue_longest_running_processor_seconds",
                                     "Seconds the longest running processor has run.", labels,
                                     [read] { return read(false); });
}
WorkQueue::~WorkQueue() = default;

void WorkQueue::add(const ObjectKey& key) {
  bool accepted;
  {
    MutexLock lock(impl_->mutex);
    accepted = impl_->core.add(key, impl_->clock.now());
    impl_->added();
  }
  impl_->changed.notify_one();
  if (!accepted)
    log::error("work queue full, key dropped",
               {{"queue", impl_->options.name}, {"object", key.str()}});
}

void WorkQueue::add_after(const ObjectKey& key, Duration delay) {
  if (delay <= Duration::zero()) return add(key);
  bool accepted;
  {
    MutexLock lock(impl_->mutex);
    accepted = impl_->core.add_at(key, impl_->clock.now() + delay);
  }
  impl_->changed.notify_one();
  if (!accepted)
    log::error("work queue full, key dropped",
               {{"queue", impl_->options.name}, {"object", key.str()}});
}

void WorkQueue::retry(const ObjectKey& key) {
  {
    MutexLock lock(impl_->mutex);
    impl_->core.retry(key, impl_->clock.now(), impl_->rng.unit());
    if (impl_->retries) impl_->retries->add();
  }
  impl_->changed.notify_one();
}

void WorkQueue::forget(const ObjectKey& key) {
  MutexLock lock(impl_->mutex);
  impl_->core.forget(key);
}

std::optional<ObjectKey> WorkQueue::take() {
  MutexLock lock(impl_->mutex);
  while (!impl_->shut) {
    if (auto key = impl_->take()) return key;
    if (const auto next = impl_->core.next()) {
      impl_->changed.wait_until(impl_->mutex, *next);
    } else {
      impl_->changed.wait(impl_->mutex);
    }
  }
  return std::nullopt;
}

std::optional<ObjectKey> WorkQueue::try_take() {
  MutexLock lock(impl_->mutex);
  if (impl_->shut) return std::nullopt;
  return impl_->take();
}

std::optional<SteadyTime> WorkQueue::due() const {
  MutexLock lock(impl_->mutex);
  if (impl_->core.ready() > 0) return SteadyTime::min();
  return impl_->core.next();
}

void WorkQueue::done(const ObjectKey& key) {
  {
    MutexLock lock(impl_->mutex);
    const SteadyTime now = impl_->clock.now();
    if (const auto begun = impl_->begun.find(key); begun != impl_->begun.end()) {
      if (impl_->worked)
        impl_->worked->observe(std::chrono::duration<double>(now - begun->second).count());
      impl_->begun.erase(begun);
    }
    impl_->core.done(key, now);
    if (impl_->depth) impl_->depth->set(static_cast<double>(impl_->core.ready()));
  }
  impl_->changed.notify_one();
}

void WorkQueue::shut_down() {
  {
    MutexLock lock(impl_->mutex);
    impl_->shut = true;
  }
  impl_->changed.notify_all();
}

std::size_t WorkQueue::size() const {
  MutexLock lock(impl_->mutex);
  return impl_->core.ready();
}

int WorkQueue::failures(const ObjectKey& key) const {
  MutexLock lock(impl_->mutex);
  return impl_->core.failures(key);
}

bool WorkQueue::idle() const {
  MutexLock lock(impl_->mutex);
  return impl_->core.ready() == 0 && impl_->core.working() == 0;
}

}  // namespace varda::runtime
