// Model: a model with hard requests that are kept, as its samples.json declares.
//
// The decision follows the answer, on the thread that answered: a few comparisons for an easy
// request. A hard request goes to the Keeper's queue, and the Keeper's thread does the rest.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "codec/json.h"
#include "oip/envelope.h"
#include "serving/inference.h"
#include "serving/model_version.h"
#include "serving/sampling/config.h"
#include "serving/sampling/rows.h"
#include "tiers/policy.h"

namespace varda::serving::sampling {

class Keeper;
class Model;

/// Reason of a problem: the Keeper has no spool for the model.
inline constexpr const char* kSpoolUnavailable = "SpoolUnavailable";

/// Counts since a version began to serve with a configuration. Thread-safe.
struct Counts {
  static constexpr std::size_t kScores = 20;

  std::atomic<std::uint64_t> answers{0};   // requests with an answer
  std::atomic<std::uint64_t> failures{0};  // requests without one, by no fault of the client
  std::atomic<std::uint64_t> hard{0};      // answers that the policy calls hard
  std::atomic<std::uint64_t> kept{0};      // samples written
  std::atomic<std::uint64_t> dropped{0};   // requests that could not be kept
  // Samples by the score of the best class: [0, 0.05), …, [0.95, 1].
  std::array<std::atomic<std::uint64_t>, kScores> scores{};
};

/// The answer of a later tier.
struct TierAnswer {
  std::string tier;
  oip::Envelope envelope;
};

/// The state that requests use: a configuration bound to a version. Constant, except for counts.
struct Plan {
  Model* model = nullptr;
  Config config;
  std::string version;
  std::string first_tier;                           // name; "": the model has one tier
  std::optional<tiers::BoundPolicy> policy;         // absent: only control samples
  std::optional<tiers::BoundPolicy> probabilities;  // for scores; absent: the model returns none
  std::vector<std::string> labels;
  InputShape input;
  std::vector<std::string> reads;  // outputs that the decision needs
  WallTime since{};
  std::string problem;  // why the policy does not fit the version; "": it fits
  std::shared_ptr<Counts> counts = std::make_shared<Counts>();
};

/// One answered request. `outputs` are the first tier's, and empty if only later tiers answered.
struct Answered {
  InferCall call;
  std::vector<tensor::Named> outputs;
  std::vector<TierAnswer> later;
};
/// Counts the answer, and queues it if it is to be kept. Never blocks on the disk.
void note_answer(const std::shared_ptr<const Plan>& plan, Answered answered);
/// Counts a request that got an error.
void note_failure(const Plan& plan, Code code);

/// Thread-safe. Lives as long as the Keeper.
class Model {
 public:
  Model(std::string name, Keeper& keeper, metrics::Registry& registry);

  const std::string& name() const { return name_; }
  Keeper& keeper() { return keeper_; }

  /// Makes the text of samples.json the wanted configuration. kInvalid: the text is wrong, and the
  /// previous one stays; describe() shows the error.
  Status want(std::string_view text);
  void forget();
  /// Binds the wanted configuration to the version. Null: none is wanted. A policy that does not
  /// fit keeps control samples only.
  std::shared_ptr<const Plan> fit(const ModelVersion& version, std::string first_tier);

  /// The wanted policy, bound to a version that does not serve. Nothing: none is wanted, it does
  /// not fit, or it decides without an answer.
  std::optional<tiers::BoundPolicy> bind_policy(const ModelVersion& version) const;

  /// Body of GET /v2/models/MODEL/samples. Other programs take samples from the spool, so the
  /// Keeper counts them again soon after, for the next answer.
  codec::Json describe() const;

  /// State of the spool, set by the Keeper.
  void set_stored(std::uint64_t count, std::uint64_t bytes);
  void set_problem(std::string reason, std::string message);  // "": none

  metrics::Counter& kept;     // varda_samples_kept_total
  metrics::Counter& dropped;  // varda_samples_dropped_total

 private:
  const std::string name_;
  Keeper& keeper_;
  metrics::Gauge& bytes_gauge_;
  mutable Mutex mutex_;
  std::optional<Config> wanted_ GUARDED_BY(mutex_);
  std::shared_ptr<const Plan> plan_ GUARDED_BY(mutex_);
  std::string invalid_ GUARDED_BY(mutex_);
  std::string problem_ GUARDED_BY(mutex_), problem_text_ GUARDED_BY(mutex_);
  std::uint64_t stored_ GUARDED_BY(mutex_) = 0, bytes_ GUARDED_BY(mutex_) = 0;
  mutable SteadyTime recount_at_ GUARDED_BY(mutex_){};
};

}  // namespace varda::serving::sampling
