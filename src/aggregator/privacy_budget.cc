#include "aggregator/privacy_budget.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "codec/digest.h"
#include "privacy/mask.h"

namespace varda::aggregator {

using codec::Json;
using federated::PrivacySettings;

namespace {

std::string_view text_of(const privacy::Key& key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

Error broken() { return {Code::kCorrupt, "the state of the privacy budget is broken"}; }

}  // namespace

Result<PrivacyBudget> PrivacyBudget::begin(const PrivacySettings& settings) {
  PrivacyBudget out(settings);
  out.seed_ = privacy::random_key();
  if (const auto& clip = settings.adaptive_clip) {
    TRY(out.adaptive_, privacy::AdaptiveClip::of({.first_clip = settings.clip,
                                                  .quantile = clip->quantile,
                                                  .learning_rate = clip->learning_rate}));
  }
  return out;
}

Result<PrivacyBudget> PrivacyBudget::restore(const PrivacySettings& settings, const Json& state) {
  TRY(PrivacyBudget out, begin(settings));
  const auto seed = codec::unbase64(state["seed"].as_string());
  if (!seed.ok() || seed->size() != out.seed_.size()) return broken();
  std::copy(seed->begin(), seed->end(), out.seed_.begin());
  std::vector<double> sums;
  for (const Json& sum : state["sums"].as_array()) sums.push_back(sum.as_double(-1));
  if (!out.accountant_.restore(std::move(sums)).ok()) return broken();
  if (out.adaptive_) {
    const double clip = state["clip"].as_double();
    if (!(clip > 0)) return broken();
    out.adaptive_->restore(clip);
  }
  return out;
}

Json PrivacyBudget::to_json() const {
  Json sums = Json::array();
  for (const double sum : accountant_.sums()) sums.push_back(sum);
  return Json::object(
      {{"seed", codec::base64(text_of(seed_))}, {"clip", clip()}, {"sums", std::move(sums)}});
}

privacy::Key PrivacyBudget::seed_of(std::string_view purpose, std::int64_t round) const {
  return privacy::derive(text_of(seed_), std::string(purpose) + "/" + std::to_string(round));
}

Result<std::optional<federated::PrivateMean>> PrivacyBudget::mean(std::int64_t round,
                                                                  std::uint64_t clients) const {
  if (settings_.mode == federated::PrivacyMode::kLocal)
    return std::optional<federated::PrivateMean>();
  double multiplier = settings_.noise_multiplier;
  if (adaptive_) {
    TRY(multiplier,
        adaptive_->update_multiplier(multiplier, clients).context("privacy.adaptiveClip"));
  }
  return std::optional(
      federated::PrivateMean{.clip = clip(),
                             .clients = clients,
                             .deviation = privacy::central_deviation(multiplier, clip(), clients),
                             .seed = seed_of("noise", round)});
}

Status PrivacyBudget::spend(std::int64_t round, const privacy::AdaptiveClip::Count& count) {
  TRY_VOID(accountant_.add(release()));
  if (adaptive_) adaptive_->update(count, privacy::Noise(seed_of("count", round)).next());
  return {};
}

bool PrivacyBudget::affords_another(const std::optional<double>& epsilon_max) const {
  if (!epsilon_max) return true;
  privacy::Accountant next = accountant_;
  return next.add(release()).ok() && next.epsilon(settings_.delta) <= *epsilon_max;
}

}  // namespace varda::aggregator
