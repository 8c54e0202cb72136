#include "serving/joint/tier_runtime.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/caught.h"
#include "base/log.h"

namespace varda::serving::joint {
namespace {

// One readiness check, and the handling of its answer.
class ReadinessCheck final : public Job {
 public:
  ReadinessCheck(std::shared_ptr<RemoteTier> remote, tiers::Breaker::Ticket ticket)
      : tier_(std::move(remote)), ticket_(ticket) {}
  ~ReadinessCheck() override {
    // No thread was available: that is no evidence about the tier.
    if (!started_) tier_->gate->abandoned(ticket_, system_clock().now());
  }

  void perform(const Upstream& upstream, const Context& ctx) {
    started_ = true;
    const Called called = upstream.ready(ctx, tier_->url, tier_->model);
    tier_->gate->probed(ticket_, called.failure, system_clock().now());
  }
  void run() override { action_(*this); }
  std::size_t bytes() const override { return 0; }

  std::function<void(ReadinessCheck&)> action_;

 private:
  const std::shared_ptr<RemoteTier> tier_;
  const tiers::Breaker::Ticket ticket_;
  bool started_ = false;
};

}  // namespace

TierRuntime::TierRuntime(Options options, Upstream::Clients clients, metrics::Registry& registry,
                         Rng& rng)
    : options_(options),
      rng_(rng),
      registry_(registry),
      instance_(rng.uuid()),
      upstream_(clients, options.limits),
      threads_({.max = options.threads_max}) {}

TierRuntime::~TierRuntime() { stop(); }

Model& TierRuntime::model(const std::string& name) {
  MutexLock lock(mutex_);
  std::unique_ptr<Model>& model = models_[name];
  if (model == nullptr) model = std::make_unique<Model>(name, registry_, rng_);
  return *model;
}

void TierRuntime::watch(Model& model) {
  {
    MutexLock lock(mutex_);
    if (std::find(watched_.begin(), watched_.end(), &model) == watched_.end())
      watched_.push_back(&model);
    check_at_ = SteadyTime{};
    begin();
  }
  changed_.notify_one();
}

TierRuntime::Timer TierRuntime::wake_at(SteadyTime when, std::weak_ptr<TimerCallback> callback) {
  bool sooner = false;
  Timer timer;
  {
    MutexLock lock(mutex_);
    timer = {when, next_timer_++};
    sooner = timers_.empty() || timer < timers_.begin()->first;
    timers_.emplace(timer, std::move(callback));
    begin();
  }
  if (sooner) changed_.notify_one();
  return timer;
}

void TierRuntime::cancel(const Timer& timer) {
  MutexLock lock(mutex_);
  timers_.erase(timer);
}

std::size_t TierRuntime::timers() const {
  MutexLock lock(mutex_);
  return timers_.size();
}

void TierRuntime::begin() {
  if (thread_.joinable() || stopped_) return;
  try {
    thread_ = std::thread([this] { follow(); });
  } catch (const std::system_error& e) {
    // The next caller with a timer tries again.
    log::error("timer thread for joint inference not started", {{"error", e.what()}});
  }
}

void TierRuntime::follow() {
  mutex_.lock();
  while (!stopped_) {
    const SteadyTime now = system_clock().now();
    if (!watched_.empty() && check_at_ <= now) {
      check_at_ = now + options_.check_interval;
      mutex_.unlock();
      contain("tier check ended with an exception", [&] { look(now); });
      mutex_.lock();
    } else if (!timers_.empty() && timers_.begin()->first.first <= now) {
      std::shared_ptr<TimerCallback> callback = timers_.begin()->second.lock();
      timers_.erase(timers_.begin());
      mutex_.unlock();
      if (callback != nullptr)
        contain("timer of a request ended with an exception", [&] { callback->wake(); });
      callback.reset();  // it may hold the last reference, and its destructor cancels a timer
      mutex_.lock();
    } else {
      SteadyTime until = now + std::chrono::hours(1);
      if (!watched_.empty()) until = check_at_;
      if (!timers_.empty()) until = std::min(until, timers_.begin()->first.first);
      changed_.wait_until(mutex_, until);
    }
  }
  mutex_.unlock();
}

void TierRuntime::look(SteadyTime now) {
  std::vector<Model*> models;
  {
    MutexLock lock(mutex_);
    models = watched_;
  }
  for (Model* model : models) {
    const std::shared_ptr<const Plan> plan = model->plan();
    if (plan == nullptr) continue;
    for (std::size_t i = 0; i < plan->remote_tiers.size(); ++i) {
      const std::shared_ptr<RemoteTier>& remote = plan->remote_tiers[i];
      if (remote == nullptr) continue;
      plan->meters[i]->breaker_state.set(breaker_number(remote->gate->health().state));
      auto ticket = remote->gate->probe(now);
      const SteadyTime called_at{SteadyTime::duration(remote->called_at.load())};
      // An idle tier: without a call, the knowledge about it would go stale.
      if (!ticket && now - called_at >= options_.idle_max) ticket = remote->gate->admit(now);
      if (!ticket) continue;
      remote->called_at = now.time_since_epoch().count();
      check_readiness(remote, *ticket);
    }
  }
}

void TierRuntime::check_readiness(const std::shared_ptr<RemoteTier>& remote,
                                  const tiers::Breaker::Ticket& ticket) {
  auto check = std::make_unique<ReadinessCheck>(remote, ticket);
  check->action_ = [this](ReadinessCheck& self) {
    self.perform(upstream_, Context(stopping()).with_timeout(options_.readiness_timeout));
  };
  std::unique_ptr<Job> job = std::move(check);
  (void)threads_.submit(job);
}

void TierRuntime::stop() {
  std::thread thread;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    thread.swap(thread_);
  }
  changed_.notify_all();
  stop_.request_stop();
  if (thread.joinable()) thread.join();
  threads_.stop();
}

}  // namespace varda::serving::joint
