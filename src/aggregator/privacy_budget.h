// PrivacyBudget: the differential privacy of one job, over all rounds and restarts.
//
//   TRY(auto budget, PrivacyBudget::begin(settings));
//   TRY(const auto mean, budget.mean(round, clients));   // for Rule::apply(); local: nothing
//   TRY_VOID(budget.spend(round, {.whole = applied.whole, .received = …, .clients = clients}));
//   if (!budget.affords_another()) …
//
// docs/design/031-privacy.md has the formulas.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "codec/json.h"
#include "federated/rules.h"
#include "federated/settings.h"
#include "privacy/accountant.h"
#include "privacy/key_agreement.h"
#include "privacy/mechanism.h"

namespace varda::aggregator {

/// A value. The state is secret: with the seed, the noise can be removed from the models.
class PrivacyBudget {
 public:
  /// A new job: a random seed, nothing spent. kInvalid: settings out of range.
  static Result<PrivacyBudget> begin(const federated::PrivacySettings& settings);
  /// kCorrupt: not a state of to_json().
  static Result<PrivacyBudget> restore(const federated::PrivacySettings& settings,
                                       const codec::Json& state);
  codec::Json to_json() const;

  /// The mean of a round in which `clients` take part. The same round gives the same noise. Nothing
  /// for PrivacyMode::kLocal. kInvalid: too few clients for the noise of the adaptive clip.
  Result<std::optional<federated::PrivateMean>> mean(std::int64_t round,
                                                     std::uint64_t clients) const;
  /// A round was aggregated. The clip follows the count.
  Status spend(std::int64_t round, const privacy::AdaptiveClip::Count& count);
  double epsilon() const { return accountant_.epsilon(settings_.delta); }
  /// False: another round would spend more than `epsilon_max`.
  bool affords_another(const std::optional<double>& epsilon_max) const;

 private:
  explicit PrivacyBudget(const federated::PrivacySettings& settings) : settings_(settings) {}
  privacy::Release release() const {
    return {.noise_multiplier = settings_.noise_multiplier, .sampling_rate = 1};
  }
  privacy::Key seed_of(std::string_view purpose, std::int64_t round) const;
  double clip() const { return adaptive_ ? adaptive_->clip() : settings_.clip; }

  federated::PrivacySettings settings_;
  privacy::Key seed_{};
  privacy::Accountant accountant_;
  std::optional<privacy::AdaptiveClip> adaptive_;
};

}  // namespace varda::aggregator
