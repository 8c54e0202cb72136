// Trial: a loaded version that answers beside the serving version, and the counts of both.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/metrics.h"
#include "base/mutex.h"
#include "serving/inference.h"
#include "serving/model_version.h"
#include "serving/trial/file.h"
#include "serving/trial/live_counts.h"
#include "tiers/policy.h"

namespace varda::serving::trial {

class Trial;

/// Runs shadow requests, one after another, on one thread of low priority. Thread-safe.
///
/// Each trial may have kQueueMax requests of kQueueBytesMax bytes in the queue. Further requests
/// are dropped and counted. The thread pauses while requests wait for the serving version.
class ShadowRunner {
 public:
  static constexpr std::size_t kQueueMax = 32;
  static constexpr std::size_t kQueueBytesMax = std::size_t{16} << 20;

  ShadowRunner() = default;
  /// Waits for the run in progress.
  ~ShadowRunner();
  ShadowRunner(const ShadowRunner&) = delete;

  /// Queues a request that the serving version answered with `outputs`. Never blocks.
  void offer(std::shared_ptr<Trial> trial, InferCall call, std::vector<tensor::Named> outputs,
             const oip::Limits& limits);
  /// Drops the queue and refuses further requests. Does not wait.
  void stop();

 private:
  struct Task {
    std::shared_ptr<Trial> trial;
    InferCall call;
    std::vector<tensor::Named> outputs;
    oip::Limits limits;
    std::size_t bytes = 0;
  };
  void work(const std::stop_token& stop);
  void run(Task& task);

  Mutex mutex_;
  CondVar changed_;
  std::deque<Task> queue_ GUARDED_BY(mutex_);
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::jthread thread_ GUARDED_BY(mutex_);  // started by the first request
};

/// Thread-safe. A change of the version, of the mode or of the serving version is another Trial.
class Trial {
 public:
  /// The policy of the model's samples, bound to each version. Absent: hard answers of that version
  /// are not counted.
  struct Policies {
    std::optional<tiers::BoundPolicy> serving, version;
  };

  /// `registry` and `runner` outlive it.
  Trial(const File& file, std::shared_ptr<ModelVersion> serving,
        std::shared_ptr<ModelVersion> version, Policies policies, metrics::Registry& registry,
        ShadowRunner& runner);

  Mode mode() const { return mode_; }
  const std::shared_ptr<ModelVersion>& serving() const { return serving_; }
  const std::shared_ptr<ModelVersion>& version() const { return version_; }
  double share() const { return share_.load(std::memory_order_relaxed); }
  void set_share(double share) { share_.store(share, std::memory_order_relaxed); }

  /// kCanary: whether the version on trial answers the next request. Among any n requests in a row
  /// n * share are chosen, rounded up or down.
  bool takes_next();

  /// Outputs that the policy reads from an answer of the version on trial.
  std::span<const std::string> reads() const {
    return policies_.version ? std::span<const std::string>(policies_.version->reads())
                             : std::span<const std::string>();
  }
  bool counts_hard_answers() const { return policies_.version || policies_.serving; }

  /// The serving version answered a request, or failed it. `all` has the outputs of the answer, and
  /// those that the policy reads.
  void serving_answered(Duration took, std::span<const tensor::Named> outputs,
                        std::span<const tensor::Named> all);
  void serving_failed() { serving_counts_.failed(); }
  /// The version on trial answered a request, or failed one that the serving version answered.
  void answered(Duration took, std::span<const tensor::Named> outputs,
                std::span<const tensor::Named> all);
  void failed();
  /// kShadow: whether both answers to one request agree.
  void compared(bool agreed);
  void dropped();

  ShadowRunner& runner() { return runner_; }
  /// {version, mode, share, answers, failures, hard, compared, agreed, dropped, microseconds,
  /// scores, since, serving}
  codec::Json json() const;

 private:
  friend class ShadowRunner;

  const Mode mode_;
  const std::shared_ptr<ModelVersion> serving_, version_;
  const Policies policies_;
  ShadowRunner& runner_;
  std::atomic<double> share_;
  std::atomic<std::uint64_t> requests_{0};  // seen by takes_next()
  std::atomic<std::uint64_t> compared_{0}, agreed_{0}, dropped_{0};
  std::atomic<std::uint64_t> serving_hard_{0}, hard_{0};
  std::atomic<std::size_t> queued_{0}, queued_bytes_{0};
  LiveCounts serving_counts_, counts_;
  metrics::Counter& answers_total_;   // varda_trial_answers_total
  metrics::Counter& failures_total_;  // varda_trial_failures_total
  metrics::Counter& agreed_total_;    // varda_trial_agreed_total
  metrics::Counter& compared_total_;  // varda_trial_compared_total
  metrics::Counter& dropped_total_;   // varda_trial_dropped_total
};

}  // namespace varda::serving::trial
