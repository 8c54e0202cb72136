// Runs one controller: a queue, its workers, and the handlers that fill the queue.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/context.h"
#include "base/metrics.h"
#include "base/rng.h"
#include "runtime/controller.h"
#include "runtime/internal/api_writer.h"

namespace varda::runtime {

class ControllerLoop {
 public:
  struct Options {
    const Clock* clock = nullptr;
    Rng* rng = nullptr;
    metrics::Registry* metrics = nullptr;
  };
  /// Registers handlers with the informers of `caches`, which hold every source of `spec`. All
  /// references outlive the loop.
  ControllerLoop(ControllerSpec spec, const kube::Client& client, const Caches& caches,
                 EventRecorder& events, const Options& options);

  void enqueue(const ObjectKey& key) { queue_.add(key); }
  bool idle() const { return queue_.idle(); }
  /// Works until `ctx` stops and every worker has finished its object. Call it once.
  void run(const Context& ctx);
  /// Processes one key, for callers that schedule the work themselves; no effect if no key is
  /// ready.
  void step(const Context& ctx);
  /// The time at which step() has a key.
  std::optional<SteadyTime> due() const { return queue_.due(); }
  std::size_t workers() const { return spec_.workers; }
  const std::string& name() const { return spec_.name; }

 private:
  void changed(const ControllerSpec::Source& source, const Change& change);
  void work(const Context& ctx);
  void work_on(const Context& ctx, const ObjectKey& key);
  /// Processes one key from start to end.
  void process(const Context& ctx, const ObjectKey& key);
  Result<Action> reconcile(const Context& ctx, const ObjectKey& key, const StoredPtr& object);
  void settle(const Context& ctx, const ObjectKey& key, const StoredPtr& object,
              const Result<Action>& result);
  metrics::Counter* result_counter(const char* result) const;

  const ControllerSpec spec_;
  const Caches& caches_;
  EventRecorder& events_;
  metrics::Registry* const metrics_;
  const Informer* primary_ = nullptr;
  WorkQueue queue_;
  ApiWriter writer_;
  metrics::Counter* succeeded_ = nullptr;
  metrics::Counter* requeued_ = nullptr;
  metrics::Counter* failed_ = nullptr;
  metrics::Counter* terminal_ = nullptr;
  metrics::Counter* panics_ = nullptr;
  metrics::Counter* errors_ = nullptr;
  metrics::Histogram* seconds_ = nullptr;
  metrics::Gauge* active_ = nullptr;
};

}  // namespace varda::runtime
