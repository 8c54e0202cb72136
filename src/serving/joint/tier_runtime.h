// TierRuntime: shared by all models with tiers of a server. It has threads for upstream calls,
// timers, and readiness checks of idle tiers.
//
// The tier runtime is free without such models: threads start with the first one.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "serving/joint/model.h"
#include "serving/joint/threads.h"
#include "serving/joint/upstream.h"

namespace varda::serving::joint {

/// A callback for a timer.
class TimerCallback {
 public:
  virtual ~TimerCallback() = default;
  /// Called on the tier runtime's own thread; must not block.
  virtual void wake() = 0;
};

/// Thread-safe. Outlives every request; stop() ends the requests.
class TierRuntime {
 public:
  struct Options {
    std::size_t threads_max = 1024;
    std::chrono::milliseconds check_interval{1000};  // interval at which due readiness checks start
    std::chrono::milliseconds idle_max{10000};       // a tier is idle after this long without calls
    std::chrono::milliseconds readiness_timeout{2000};
    oip::Limits limits = {};
  };
  /// The clients, `registry` and `rng` outlive the tier runtime.
  TierRuntime(Options options, Upstream::Clients clients, metrics::Registry& registry, Rng& rng);
  /// Calls stop().
  ~TierRuntime();
  TierRuntime(const TierRuntime&) = delete;

  /// The model of that name, created on first use; it lives as long as the tier runtime.
  Model& model(const std::string& name);
  /// Checks the readiness of the tiers of the model's plan from now on.
  void watch(Model& model);

  Threads& threads() { return threads_; }
  const Upstream& upstream() const { return upstream_; }
  Rng& rng() { return rng_; }
  /// A random id of this tier runtime.
  const std::string& instance() const { return instance_; }
  /// Stop token for calls; stop() triggers it.
  std::stop_token stopping() const { return stop_.get_token(); }
  /// Identifies one wake_at().
  using Timer = std::pair<SteadyTime, std::uint64_t>;
  Timer wake_at(SteadyTime when, std::weak_ptr<TimerCallback> callback);
  /// Removes the timer, so that a finished request leaves nothing behind. Harmless after the timer
  /// has fired.
  void cancel(const Timer& timer);
  /// Number of pending timers.
  std::size_t timers() const;

  /// Cancels all calls, so that requests end with their best answer so far, and waits for the
  /// calls.
  void stop();

 private:
  void begin() REQUIRES(mutex_);
  void follow();
  void look(SteadyTime now);
  void check_readiness(const std::shared_ptr<RemoteTier>& remote,
                       const tiers::Breaker::Ticket& ticket);

  const Options options_;
  Rng& rng_;
  metrics::Registry& registry_;
  const std::string instance_;
  const Upstream upstream_;
  std::stop_source stop_;
  Threads threads_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::unique_ptr<Model>> models_ GUARDED_BY(mutex_);
  std::vector<Model*> watched_ GUARDED_BY(mutex_);
  std::map<Timer, std::weak_ptr<TimerCallback>> timers_ GUARDED_BY(mutex_);
  std::uint64_t next_timer_ GUARDED_BY(mutex_) = 0;
  SteadyTime check_at_ GUARDED_BY(mutex_){};
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::thread thread_ GUARDED_BY(mutex_);
};

}  // namespace varda::serving::joint
