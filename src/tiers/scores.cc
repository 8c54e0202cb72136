#include "tiers/scores.h"

#include <algorithm>
#include <cmath>

namespace varda::tiers {

ClassScores class_scores(std::span<const double> probabilities) {
  ClassScores out;
  double second = 0, sum = 0;
  for (const double p : probabilities) {
    second = std::max(second, std::min(out.confidence, p));
    out.confidence = std::max(out.confidence, p);
    if (p > 0) sum += p * std::log(p);
  }
  out.margin = out.confidence - second;
  if (probabilities.size() > 1)
    out.entropy = -sum / std::log(static_cast<double>(probabilities.size()));
  return out;
}

double negative_energy(std::span<const double> logits, double temperature) {
  if (logits.empty()) return 0;
  // The greatest logit moves out of the sum, so that exp() neither overflows nor vanishes.
  const double greatest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp((logit - greatest) / temperature);
  return greatest + temperature * std::log(sum);
}

}  // namespace varda::tiers
