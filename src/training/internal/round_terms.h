// Changes of gradients in a round of federated learning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "training/internal/key_stream.h"

namespace varda::training {

using Values = std::vector<std::vector<float>>;  // of each trained weight

/// FedProx (Li et al. 2020, equation 2): gradient += mu * (weight - start).
void add_proximal_term(std::span<float> gradient, std::span<const float> weight,
                       std::span<const float> start, double mu);

/// SCAFFOLD (Karimireddy et al. 2020, algorithm 1, line 10): gradient += c - c_i. An empty variate
/// is zero.
void add_control(std::span<float> gradient, std::span<const float> server,
                 std::span<const float> own);

/// SCAFFOLD, line 12, option II: c_i - c + (x - y) / rates, where `rates` is the sum of the
/// learning rates of the round: K * eta for a constant rate. An empty variate is zero.
std::vector<float> next_control(std::span<const float> server, std::span<const float> own,
                                std::span<const float> start, std::span<const float> trained,
                                double rates);

/// The samples of a step: each with probability `rate`, ascending (Poisson sampling, as the
/// accountant of DP-SGD assumes).
std::vector<std::size_t> poisson_sample(std::span<const std::size_t> samples, double rate,
                                        KeyStream& stream);

/// DP-SGD (Abadi et al. 2016, algorithm 1), one step: the sum of the samples' gradients, each with
/// a norm of at most `clip_norm`, plus normal noise of deviation `noise` * `clip_norm`, divided by
/// the expected number of samples.
class PrivateSum {
 public:
  PrivateSum(std::span<const std::size_t> sizes, double clip_norm);
  /// Adds the gradient of one sample. False: the gradient is not finite, and is not added.
  bool add(const Values& gradient);
  Values finish(double noise, double expected_samples, KeyStream& stream) const;

 private:
  const double clip_norm_;
  std::vector<std::vector<double>> sums_;
};

}  // namespace varda::training
