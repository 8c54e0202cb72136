#include "serving/joint/center.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/caught.h"
#include "base/log.h"

namespace varda::serving::joint {
namespace {

// One readiness check, and the handling of its answer.
class Question final : public Job {
 public:
  Question(std::shared_ptr<Upper> upper, cascade::Breaker::Ticket ticket)
      : upper_(std::move(upper)), ticket_(ticket) {}
  ~Question() override {
    // No thread was available: that is no evidence about the tier.
    if (!asked_) upper_->gate->abandoned(ticket_, system_clock().now());
  }

  void ask(const Upstream& upstream, const Context& ctx) {
    asked_ = true;
    const Called called = upstream.ready(ctx, upper_->url, upper_->model);
    upper_->gate->probed(ticket_, called.failure, system_clock().now());
  }
  void run() override { ask_(*this); }
  std::size_t bytes() const override { return 0; }

  std::function<void(Question&)> ask_;

 private:
  const std::shared_ptr<Upper> upper_;
  const cascade::Breaker::Ticket ticket_;
  bool asked_ = false;
};

}  // namespace

Center::Center(Options options, Upstream::Clients clients, metrics::Registry& registry, Rng& rng)
    : options_(options),
      rng_(rng),
      registry_(registry),
      instance_(rng.uuid()),
      upstream_(clients, options.limits),
      threads_({.max = options.threads_max}) {}

Center::~Center() { stop(); }

Model& Center::model(const std::string& name) {
  MutexLock lock(mutex_);
  std::unique_ptr<Model>& model = models_[name];
  if (model == nullptr) model = std::make_unique<Model>(name, registry_, rng_);
  return *model;
}

void Center::watch(Model& model) {
  {
    MutexLock lock(mutex_);
    if (std::find(watched_.begin(), watched_.end(), &model) == watched_.end())
      watched_.push_back(&model);
    look_at_ = SteadyTime{};
    begin();
  }
  changed_.notify_one();
}

Center::Alarm Center::wake_at(SteadyTime when, std::weak_ptr<Sleeper> sleeper) {
  bool sooner = false;
  Alarm alarm;
  {
    MutexLock lock(mutex_);
    alarm = {when, next_alarm_++};
    sooner = alarms_.empty() || alarm < alarms_.begin()->first;
    alarms_.emplace(alarm, std::move(sleeper));
    begin();
  }
  if (sooner) changed_.notify_one();
  return alarm;
}

void Center::cancel(const Alarm& alarm) {
  MutexLock lock(mutex_);
  alarms_.erase(alarm);
}

std::size_t Center::alarms() const {
  MutexLock lock(mutex_);
  return alarms_.size();
}

void Center::begin() {
  if (thread_.joinable() || stopped_) return;
  try {
    thread_ = std::thread([this] { follow(); });
  } catch (const std::system_error& e) {
    // The next caller with a timer tries again.
    log::error("timer thread for joint inference not started", {{"error", e.what()}});
  }
}

void Center::follow() {
  mutex_.lock();
  while (!stopped_) {
    const SteadyTime now = system_clock().now();
    if (!watched_.empty() && look_at_ <= now) {
      look_at_ = now + options_.look_interval;
      mutex_.unlock();
      contain("tier check ended with an exception", [&] { look(now); });
      mutex_.lock();
    } else if (!alarms_.empty() && alarms_.begin()->first.first <= now) {
      std::shared_ptr<Sleeper> sleeper = alarms_.begin()->second.lock();
      alarms_.erase(alarms_.begin());
      mutex_.unlock();
      if (sleeper != nullptr)
        contain("timer of a request ended with an exception", [&] { sleeper->wake(); });
      sleeper.reset();  // it may hold the last reference, and its destructor cancels a timer
      mutex_.lock();
    } else {
      SteadyTime until = now + std::chrono::hours(1);
      if (!watched_.empty()) until = look_at_;
      if (!alarms_.empty()) until = std::min(until, alarms_.begin()->first.first);
      changed_.wait_until(mutex_, until);
    }
  }
  mutex_.unlock();
}

void Center::look(SteadyTime now) {
  std::vector<Model*> models;
  {
    MutexLock lock(mutex_);
    models = watched_;
  }
  for (Model* model : models) {
    const std::shared_ptr<const Plan> plan = model->plan();
    if (plan == nullptr) continue;
    for (std::size_t i = 0; i < plan->uppers.size(); ++i) {
      const std::shared_ptr<Upper>& upper = plan->uppers[i];
      if (upper == nullptr) continue;
      plan->meters[i]->breaker_state.set(breaker_number(upper->gate->health().state));
      auto ticket = upper->gate->probe(now);
      const SteadyTime asked_at{SteadyTime::duration(upper->asked_at.load())};
      // An idle tier: without a call, the knowledge about it would go stale.
      if (!ticket && now - asked_at >= options_.quiet_max) ticket = upper->gate->admit(now);
      if (!ticket) continue;
      upper->asked_at = now.time_since_epoch().count();
      ask_for_readiness(upper, *ticket);
    }
  }
}

void Center::ask_for_readiness(const std::shared_ptr<Upper>& upper,
                               const cascade::Breaker::Ticket& ticket) {
  auto question = std::make_unique<Question>(upper, ticket);
  question->ask_ = [this](Question& self) {
    self.ask(upstream_, Context(stopping()).with_timeout(options_.readiness_timeout));
  };
  std::unique_ptr<Job> job = std::move(question);
  (void)threads_.submit(job);
}

void Center::stop() {
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
