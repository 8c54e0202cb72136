// Formulas against forgetting, on gradients and outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "train/gradient_graph.h"
#include "training/internal/round_terms.h"

namespace varda::training {

/// Elastic weight consolidation (Kirkpatrick et al. 2017, equation 3) adds lambda / 2 * sum of
/// F * (weight - start)^2 to the loss: gradient += lambda * F * (weight - start). lambda * F counts
/// as at most `stiffness_max`: gradient descent with rate r diverges above 2 / r.
void add_elastic_term(std::span<float> gradient, std::span<const float> weight,
                      std::span<const float> start, std::span<const float> fisher, double lambda,
                      double stiffness_max);

/// The diagonal of the Fisher information: the mean of the squared gradients of log p(y | x), one
/// sample each, with y drawn from the model's answer.
class FisherSum {
 public:
  explicit FisherSum(std::span<const std::size_t> sizes);
  /// The gradient of the loss of one sample.
  void add(const Values& gradient);
  Values mean() const;

 private:
  std::vector<std::vector<double>> sums_;
  std::uint64_t samples_ = 0;
};

/// The first class with a cumulative probability above `unit`, from 0 to below 1.
std::int64_t draw_class(std::span<const float> row, train::Activation activation, double unit);

/// A-GEM (Chaudhry et al. 2019, equation 11): if g * r < 0, then g -= (g * r) / (r * r) * r, where
/// r is the gradient on the memory. Returns whether g changed.
bool project(Values& gradient, const Values& reference);

/// softmax(scores / temperature) of one row of a model's output (Li and Hoiem 2018, equation 3).
/// Probabilities of 0 count as 1e-30.
std::vector<float> soften(std::span<const float> row, train::Activation activation,
                          double temperature);

}  // namespace varda::training
