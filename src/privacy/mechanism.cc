#include "privacy/mechanism.h"

#include <cmath>
#include <string>

#include "base/check.h"
#include "privacy/mask.h"

namespace varda::privacy {

double clip_factor(double norm, double clip) { return norm > clip ? clip / norm : 1; }

double central_deviation(double noise_multiplier, double clip, std::uint64_t clients) {
  CHECK(clients > 0);
  return noise_multiplier * clip / static_cast<double>(clients);
}

double local_deviation(double noise_multiplier, double clip) { return 2 * clip * noise_multiplier; }

void add_noise(const Key& seed, double deviation, std::span<float> values) {
  Noise noise(seed);
  for (float& value : values) value = static_cast<float>(value + deviation * noise.next());
}

void add_noise(const Key& seed, double deviation, std::uint64_t first, std::span<double> values) {
  CHECK(first % 2 == 0);
  Noise noise(seed, first);
  for (double& value : values) value += deviation * noise.next();
}

Result<AdaptiveClip> AdaptiveClip::of(const Options& options) {
  if (!(options.first_clip > 0) || !std::isfinite(options.first_clip))
    return Error(Code::kInvalid, "the first clip must be positive");
  if (!(options.quantile > 0 && options.quantile < 1))
    return Error(Code::kInvalid, "the quantile must be between 0 and 1");
  if (!(options.learning_rate > 0 && options.learning_rate <= 1))
    return Error(Code::kInvalid, "the learning rate of the clip must be above 0 and at most 1");
  if (!(options.count_deviation >= 0))
    return Error(Code::kInvalid, "the noise of the count must not be negative");
  return AdaptiveClip(options);
}

double AdaptiveClip::count_deviation(std::uint64_t clients) const {
  return options_.count_deviation > 0 ? options_.count_deviation
                                      : static_cast<double>(clients) / 20;
}

void AdaptiveClip::update(const Count& count, double standard_normal) {
  CHECK(count.clients > 0);
  const auto clients = static_cast<double>(count.clients);
  // The sum of the shifted indicators is whole - received / 2, and clients / 2 undoes the shift.
  const double whole = static_cast<double>(count.whole) +
                       (clients - static_cast<double>(count.received)) / 2 +
                       count_deviation(count.clients) * standard_normal;
  const double share = whole / clients;
  clip_ *= std::exp(-options_.learning_rate * (share - options_.quantile));
}

Result<double> AdaptiveClip::update_multiplier(double noise_multiplier,
                                               std::uint64_t clients) const {
  // update() shifts the indicator of a whole update by 1/2, so one client changes the count by 1/2.
  const double count = 2 * count_deviation(clients);
  const double inverse = 1 / (noise_multiplier * noise_multiplier) - 1 / (count * count);
  if (!(inverse > 0))
    return Error(Code::kInvalid, "the noise multiplier " + std::to_string(noise_multiplier) +
                                     " is too large for the noise of the count, " +
                                     std::to_string(count_deviation(clients)) +
                                     ": choose more clients");
  return 1 / std::sqrt(inverse);
}

}  // namespace varda::privacy
