// Scores: how sure a model is of one sample, from its class probabilities or logits. Pure.
#pragma once

#include <span>

namespace varda::tiers {

/// All 0 without values. `confidence` is the greatest probability p1, and `margin` is p1 - p2
/// (Scheffer, Decomain, Wrobel 2001). `entropy` is -sum of p ln p / ln n, in [0, 1] for
/// probabilities (Settles 2009); 0 for a single class.
struct ClassScores {
  double confidence = 0;
  double margin = 0;
  double entropy = 0;
};
ClassScores class_scores(std::span<const double> probabilities);

/// T ln of the sum of exp(f / T), over the logits f (Liu and others, "Energy-based
/// Out-of-distribution Detection", NeurIPS 2020, equation 4, without the sign). Small for inputs
/// unlike the training data. NaN for NaN.
double negative_energy(std::span<const double> logits, double temperature = 1);

}  // namespace varda::tiers
