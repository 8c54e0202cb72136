// Center: what all models with tiers of a server share: threads for calls of other servers, alarms, and questions for readiness of
// tiers that nobody asks anything else.
//
// Without a model that has tiers it costs nothing: threads begin with the first one.
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

/// Somebody who wants to be told when it is time.
class Sleeper {
 public:
  virtual ~Sleeper() = default;
  /// Called on a thread of the center that must not be held up.
  virtual void wake() = 0;
};

/// Thread-safe. Outlives every request; stop() first.
class Center {
 public:
  struct Options {
    std::size_t threads_max = 1024;
    std::chrono::milliseconds look_interval{1000};  // how often it is seen to which tiers are to be asked for readiness
    std::chrono::milliseconds quiet_max{10000};     // a tier that nobody asked for so long is
    std::chrono::milliseconds readiness_timeout{2000};
    oip::Limits limits = {};
  };
  /// The clients and `registry` outlive it, `rng` too.
  Center(Options options, Upstream::Clients clients, metrics::Registry& registry, Rng& rng);
  /// As stop().
  ~Center();
  Center(const Center&) = delete;

  /// The model of that name, made when first asked for; it lives as long as this.
  Model& model(const std::string& name);
  /// From now on tiers of the model's plan are asked for readiness.
  void watch(Model& model);

  Threads& threads() { return threads_; }
  const Upstream& upstream() const { return upstream_; }
  Rng& rng() { return rng_; }
  /// Drawn when this was made.
  const std::string& instance() const { return instance_; }
  /// Of calls: stopped by stop().
  std::stop_token stopping() const { return stop_.get_token(); }
  /// Of one wake_at().
  using Alarm = std::pair<SteadyTime, std::uint64_t>;
  Alarm wake_at(SteadyTime when, std::weak_ptr<Sleeper> sleeper);
  /// Forgets it, so that nothing is kept for who need not be woken any more. Harmless if it has rung.
  void cancel(const Alarm& alarm);
  /// How many are set.
  std::size_t alarms() const;

  /// Gives up all calls, so that requests end with what they have, and waits for them.
  void stop();

 private:
  void begin() REQUIRES(mutex_);
  void follow();
  void look(SteadyTime now);
  void ask_for_readiness(const std::shared_ptr<Upper>& upper, const cascade::Breaker::Ticket& ticket);

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
  std::map<Alarm, std::weak_ptr<Sleeper>> alarms_ GUARDED_BY(mutex_);
  std::uint64_t next_alarm_ GUARDED_BY(mutex_) = 0;
  SteadyTime look_at_ GUARDED_BY(mutex_){};
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::thread thread_ GUARDED_BY(mutex_);
};

}  // namespace varda::serving::joint
