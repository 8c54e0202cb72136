// Model: one model that is served over several tiers, as its joint.json declares. The first tier
// is the local model itself.
//
// A Model lives as long as the server, across versions and configurations. It keeps the counters
// and the state of the later tiers.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/rng.h"
#include "codec/json.h"
#include "serving/joint/meters.h"
#include "serving/model_version.h"
#include "tiers/config.h"
#include "tiers/machine.h"
#include "tiers/policy.h"
#include "tiers/statistics.h"

namespace varda::serving::joint {

class Model;

/// Reason code of a version, or of a file, with a policy that reads outputs which the version
/// lacks.
inline constexpr std::string_view kPolicyMismatch = "PolicyMismatch";

/// A later tier. The object lasts as long as name, address and model stay the same.
struct RemoteTier {
  std::string name;
  std::string url;
  std::string model;
  std::shared_ptr<tiers::TierGate> gate;
  std::atomic<SteadyTime::rep> called_at{0};  // time of the last call of any kind; 0: never
};

/// Why a policy cannot read the answers of its later tier, according to the latest answers.
/// Thread-safe.
class PolicyMismatch {
 public:
  /// Sets the reason; "": the policy can read the answers. The reason contains names from the other
  /// server, so its length is limited.
  void set(std::string why);
  std::string why() const;
  bool known() const { return known_.load(std::memory_order_acquire); }
  /// True at most once per kPause, so that differing servers behind one address do not flood the
  /// log.
  bool should_log(SteadyTime now);
  static constexpr std::chrono::seconds kPause{60};

 private:
  std::atomic<bool> known_{false};
  mutable Mutex mutex_;
  std::optional<SteadyTime> logged_ GUARDED_BY(mutex_);
  std::string why_ GUARDED_BY(mutex_);
};

/// The state that requests use: a configuration bound to the outputs of one version of the first
/// tier. Constant.
struct Plan {
  Model* model = nullptr;
  tiers::Config config;
  std::shared_ptr<const tiers::Route> route;
  std::optional<tiers::BoundPolicy> policy;                    // for the first tier
  std::vector<std::shared_ptr<RemoteTier>> remote_tiers;       // by tier; null without an address
  std::vector<std::shared_ptr<tiers::TierCounters>> counters;  // by tier
  std::vector<std::shared_ptr<TierMeters>> meters;             // by tier
  std::vector<std::unique_ptr<PolicyMismatch>> mismatches;     // by tier
  SteadyTime since{};                                          // when the configuration took effect
};

/// Thread-safe.
class Model {
 public:
  /// `registry` and `rng` outlive the model.
  Model(std::string name, metrics::Registry& registry, Rng& rng);

  const std::string& name() const { return name_; }
  tiers::Statistics& statistics() { return statistics_; }
  Meters& meters() { return meters_; }

  /// Makes the file's text the wanted configuration. kInvalid: the text is wrong; describe() shows
  /// the error, and the previous configuration stays wanted.
  Status want(std::string_view text);
  /// The file was removed: clears the wanted configuration and the plan.
  void forget();
  /// Binds the wanted configuration to a version. Null: none is wanted. kInvalid: the policy reads
  /// outputs that the version lacks.
  Result<std::shared_ptr<const Plan>> fit(const ModelVersion& version);
  /// The plan while no version is loaded: every request goes to the later tiers. Null: no
  /// configuration is wanted.
  std::shared_ptr<const Plan> fit_none();
  /// Puts the plan in force; null: no plan. Clears the problem of fit().
  void adopt(std::shared_ptr<const Plan> plan);
  /// Records that the wanted policy does not fit the active version.
  void refuse(const Error& why);

  /// The plan in force; null: none.
  std::shared_ptr<const Plan> plan() const;

  /// Body of GET /v2/models/MODEL/joint. `version` is the first tier's, "" while none is loaded.
  codec::Json describe(const std::string& instance, const std::string& version, SteadyTime now,
                       WallTime wall) const;

 private:
  struct Problem {
    std::string reason;
    std::string message;
  };
  std::shared_ptr<RemoteTier> later_tier(const tiers::TierConfig& tier) REQUIRES(mutex_);
  std::shared_ptr<Plan> draft(const std::shared_ptr<const tiers::Policy>& first) REQUIRES(mutex_);

  const std::string name_;
  metrics::Registry& registry_;
  Rng& rng_;
  tiers::Statistics statistics_;
  Meters meters_;
  const std::shared_ptr<tiers::InFlight> in_flight_;
  mutable Mutex mutex_;
  std::optional<tiers::Config> wanted_ GUARDED_BY(mutex_);
  std::shared_ptr<const Plan> plan_ GUARDED_BY(mutex_);
  std::optional<Problem> problem_ GUARDED_BY(mutex_);
};

/// True if some later tier is known to answer.
bool later_tier_answers(const Plan& plan);

}  // namespace varda::serving::joint
