// Model: one model that is served over several tiers, as cascade.json beside it says; its first tier is the model itself.
//
// It lives as long as the server, whatever versions and configurations come and go: it keeps what is counted and what is known of
// the other tiers.
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
#include "cascade/config.h"
#include "cascade/machine.h"
#include "cascade/policy.h"
#include "cascade/statistics.h"
#include "codec/json.h"
#include "serving/joint/meters.h"
#include "serving/model_version.h"

namespace varda::serving::joint {

class Model;

/// What a version, or a file, is refused with whose policy reads what the version does not put out.
inline constexpr std::string_view kPolicyMismatch = "PolicyMismatch";

/// A tier above the first, as long as its name, address and model stay the same.
struct Upper {
  std::string name;
  std::string url;
  std::string model;
  std::shared_ptr<cascade::TierGate> gate;
  std::atomic<SteadyTime::rep> asked_at{0};  // when it was last asked anything; 0: never
};

/// Why the policy of a tier above the first cannot read what the tier answers, as the last answers show it. Thread-safe.
class Misfit {
 public:
  /// "": it can. What it is told has names of another server in it: of many words the first are kept.
  void set(std::string why);
  std::string why() const;
  bool known() const { return known_.load(std::memory_order_acquire); }
  /// Whether it is to be logged: once a kPause, so that servers that differ behind one address fill no log.
  bool is_news(SteadyTime now);
  static constexpr std::chrono::seconds kPause{60};

 private:
  std::atomic<bool> known_{false};
  mutable Mutex mutex_;
  std::optional<SteadyTime> logged_ GUARDED_BY(mutex_);
  std::string why_ GUARDED_BY(mutex_);
};

/// What requests go by: a configuration, bound to what one version of the first tier's model puts out. Constant.
struct Plan {
  Model* model = nullptr;
  cascade::Config config;
  std::shared_ptr<const cascade::Route> route;
  std::optional<cascade::BoundPolicy> policy;                    // of the first tier
  std::vector<std::shared_ptr<Upper>> uppers;                    // by tier; null at the first and where there is no address
  std::vector<std::shared_ptr<cascade::TierCounters>> counters;  // by tier
  std::vector<std::shared_ptr<TierMeters>> meters;               // by tier
  std::vector<std::unique_ptr<Misfit>> misfits;                  // by tier
  SteadyTime since{};                                            // the configuration is in force
};

/// Thread-safe.
class Model {
 public:
  /// `registry` and `rng` outlive it.
  Model(std::string name, metrics::Registry& registry, Rng& rng);

  const std::string& name() const { return name_; }
  cascade::Statistics& statistics() { return statistics_; }
  Meters& meters() { return meters_; }

  /// Takes the file's text for what is wanted from now on. kInvalid: it cannot be read, which problem() tells too; what was wanted
  /// before still is.
  Status want(std::string_view text);
  /// The file is gone: nothing is wanted, nothing in force.
  void forget();
  /// What is wanted, for a version. Null: nothing is. kInvalid: the policy asks for what the version does not put out.
  Result<std::shared_ptr<const Plan>> fit(const ModelVersion& version);
  /// What is wanted, for the time while no version is loaded: every request goes up. Null: nothing is.
  std::shared_ptr<const Plan> fit_none();
  /// The plan is in force from now on; null: none is. Ends the problem of fit().
  void adopt(std::shared_ptr<const Plan> plan);
  /// The wanted policy does not fit the version that serves.
  void refuse(const Error& why);

  /// In force; null: none.
  std::shared_ptr<const Plan> plan() const;

  /// GET /v2/models/MODEL/cascade. `version` is the first tier's, "" while none is loaded.
  codec::Json describe(const std::string& instance, const std::string& version, SteadyTime now, WallTime wall) const;

 private:
  struct Problem {
    std::string reason;
    std::string message;
  };
  std::shared_ptr<Upper> upper(const cascade::TierConfig& tier) REQUIRES(mutex_);
  std::shared_ptr<Plan> draft(const std::shared_ptr<const cascade::Policy>& first) REQUIRES(mutex_);

  const std::string name_;
  metrics::Registry& registry_;
  Rng& rng_;
  cascade::Statistics statistics_;
  Meters meters_;
  const std::shared_ptr<cascade::InFlight> in_flight_;
  mutable Mutex mutex_;
  std::optional<cascade::Config> wanted_ GUARDED_BY(mutex_);
  std::shared_ptr<const Plan> plan_ GUARDED_BY(mutex_);
  std::optional<Problem> problem_ GUARDED_BY(mutex_);
};

/// Whether some tier above the first is known to answer.
bool answers_above(const Plan& plan);

}  // namespace varda::serving::joint
