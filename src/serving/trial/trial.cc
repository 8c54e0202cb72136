#include "serving/trial/trial.h"

#include <cmath>
#include <utility>

#include "base/caught.h"
#include "os/background.h"
#include "serving/trial/best_class.h"

namespace varda::serving::trial {
namespace {

constexpr std::chrono::milliseconds kPause{1};  // between looks at a busy serving version

metrics::Counter& trial_counter(metrics::Registry& registry, const char* name, const char* help,
                                const ModelVersion& version, Mode mode) {
  return registry.counter(name, help,
                          {{"model", version.model()},
                           {"version", version.version()},
                           {"mode", std::string(to_string(mode))}});
}

std::size_t bytes_of(const InferCall& call, const std::vector<tensor::Named>& outputs) {
  std::size_t bytes = call.bytes();
  for (const tensor::Named& output : outputs) bytes += output.tensor.bytes().size();
  return bytes;
}

// A request of the queue as a job of the executor, which limits concurrent runs.
class ShadowJob final : public Job {
 public:
  ShadowJob(Trial& trial, InferCall call, const std::vector<tensor::Named>& outputs,
            const oip::Limits& limits)
      : trial_(trial), call_(std::move(call)), outputs_(outputs), limits_(limits) {}

  std::size_t bytes() const override { return call_.bytes(); }
  void run() override {
    const SteadyTime start = system_clock().now();
    const auto inferred = infer(*trial_.version(), call_, trial_.reads(), limits_);
    const Duration took = system_clock().now() - start;
    if (!inferred.ok()) return trial_.failed();
    trial_.answered(took, inferred->outputs, all_outputs(*inferred));
    trial_.compared(agree(outputs_, inferred->outputs));
  }

 private:
  Trial& trial_;
  const InferCall call_;
  const std::vector<tensor::Named>& outputs_;
  const oip::Limits limits_;
};

}  // namespace

ShadowRunner::~ShadowRunner() {
  stop();
  std::jthread thread;
  {
    const MutexLock lock(mutex_);
    thread = std::move(thread_);
  }
}

void ShadowRunner::stop() {
  std::deque<Task> dropped;  // destroyed without the lock
  const MutexLock lock(mutex_);
  stopped_ = true;
  dropped.swap(queue_);
  thread_.request_stop();
}

void ShadowRunner::offer(std::shared_ptr<Trial> trial, InferCall call,
                         std::vector<tensor::Named> outputs, const oip::Limits& limits) {
  const std::size_t bytes = bytes_of(call, outputs);
  Trial& of = *trial;
  const MutexLock lock(mutex_);
  if (stopped_) return;
  // An empty queue takes a request of any size.
  if (of.queued_.load() >= kQueueMax ||
      (of.queued_.load() > 0 && of.queued_bytes_.load() + bytes > kQueueBytesMax))
    return of.dropped();
  of.queued_.fetch_add(1);
  of.queued_bytes_.fetch_add(bytes);
  queue_.push_back({std::move(trial), std::move(call), std::move(outputs), limits, bytes});
  if (!thread_.joinable())
    thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
  changed_.notify_one();
}

void ShadowRunner::work(const std::stop_token& stop) {
  os::lower_thread_priority();
  while (!stop.stop_requested()) {
    Task task;
    {
      const MutexLock lock(mutex_);
      while (queue_.empty() && !stop.stop_requested()) changed_.wait(mutex_, stop);
      if (stop.stop_requested()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    while (task.trial->serving()->executor().waiting() > 0 && !stop.stop_requested()) {
      const MutexLock lock(mutex_);
      changed_.wait_until(mutex_, stop, system_clock().now() + kPause);
    }
    if (stop.stop_requested()) return;
    contain("shadow request ended with an exception", [&] { run(task); });
    task.trial->queued_.fetch_sub(1);
    task.trial->queued_bytes_.fetch_sub(task.bytes);
  }
}

void ShadowRunner::run(Task& task) {
  task.call.arrived = system_clock().now();  // the time in this queue is no reason to refuse
  ShadowJob job(*task.trial, std::move(task.call), task.outputs, task.limits);
  if (!task.trial->version()->executor().run_here(job)) task.trial->dropped();
}

Trial::Trial(const File& file, std::shared_ptr<ModelVersion> serving,
             std::shared_ptr<ModelVersion> version, Policies policies, metrics::Registry& registry,
             ShadowRunner& runner)
    : mode_(file.mode),
      serving_(std::move(serving)),
      version_(std::move(version)),
      policies_(std::move(policies)),
      runner_(runner),
      share_(file.share),
      answers_total_(trial_counter(registry, "varda_trial_answers_total",
                                   "Requests that the version on trial answered.", *version_,
                                   mode_)),
      failures_total_(trial_counter(
          registry, "varda_trial_failures_total",
          "Requests that the version on trial failed, while the serving version answered.",
          *version_, mode_)),
      agreed_total_(trial_counter(registry, "varda_trial_agreed_total",
                                  "Shadow requests with agreeing answers of both versions.",
                                  *version_, mode_)),
      compared_total_(trial_counter(registry, "varda_trial_compared_total",
                                    "Shadow requests with answers of both versions.", *version_,
                                    mode_)),
      dropped_total_(trial_counter(registry, "varda_trial_dropped_total",
                                   "Shadow requests that were not run: the server was busy.",
                                   *version_, mode_)) {}

bool Trial::takes_next() {
  const auto before = static_cast<double>(requests_.fetch_add(1, std::memory_order_relaxed));
  const double share = this->share();
  return std::floor((before + 1) * share) > std::floor(before * share);
}

void Trial::serving_answered(Duration took, std::span<const tensor::Named> outputs,
                             std::span<const tensor::Named> all) {
  serving_counts_.answered(took, outputs);
  if (policies_.serving && policies_.serving->after(all).hard) serving_hard_.fetch_add(1);
}

void Trial::answered(Duration took, std::span<const tensor::Named> outputs,
                     std::span<const tensor::Named> all) {
  counts_.answered(took, outputs);
  if (policies_.version && policies_.version->after(all).hard) hard_.fetch_add(1);
  answers_total_.add();
}

void Trial::failed() {
  counts_.failed();
  failures_total_.add();
}

void Trial::compared(bool agreed) {
  compared_.fetch_add(1, std::memory_order_relaxed);
  compared_total_.add();
  if (!agreed) return;
  agreed_.fetch_add(1, std::memory_order_relaxed);
  agreed_total_.add();
}

void Trial::dropped() {
  dropped_.fetch_add(1, std::memory_order_relaxed);
  dropped_total_.add();
}

codec::Json Trial::json() const {
  using codec::Json;
  Json out = Json::object({{"version", version_->version()}, {"mode", to_string(mode_)}});
  if (mode_ == Mode::kCanary) out.set("share", share());
  // Read first: an answer counts before its comparison, and before it counts as hard.
  const std::uint64_t agreed = agreed_.load(), compared = compared_.load();
  const std::uint64_t hard = hard_.load(), serving_hard = serving_hard_.load();
  for (auto& [name, value] : counts_.json().as_object()) out.set(name, value);
  if (policies_.version) out.set("hard", hard);
  if (mode_ == Mode::kShadow) {
    out.set("compared", compared);
    out.set("agreed", agreed);
    out.set("dropped", dropped_.load(std::memory_order_relaxed));
  }
  Json microseconds = Json::object();
  const auto set_median = [&](const char* name, const LiveCounts& counts) {
    if (const auto median = counts.median_microseconds())
      microseconds.set(name, static_cast<std::int64_t>(std::llround(*median)));
  };
  set_median("serving", serving_counts_);
  set_median("trial", counts_);
  out.set("microseconds", std::move(microseconds));
  Json serving = Json::object({{"version", serving_->version()}});
  for (auto& [name, value] : serving_counts_.json().as_object()) serving.set(name, value);
  if (policies_.serving) serving.set("hard", serving_hard);
  out.set("serving", std::move(serving));
  return out;
}

}  // namespace varda::serving::trial
