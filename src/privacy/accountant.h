// Accountant: the privacy budget of repeated Gaussian noise, by Rényi differential privacy (RDP).
//
//   Accountant accountant;
//   accountant.add({.noise_multiplier = 1.1, .sampling_rate = 256.0 / 60000}, 14062);
//   accountant.epsilon(1e-5);  // 3.0
//
// Sources: Mironov, Talwar, Zhang 2019, "Rényi Differential Privacy of the Sampled Gaussian
// Mechanism" (arXiv:1908.10530), section 3.3; Canonne, Kamath, Steinke 2020, "The Discrete Gaussian
// for Differential Privacy" (arXiv:2004.00010), proposition 12, for the conversion to epsilon.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/result.h"

namespace varda::privacy {

/// One release of a sum to which each participant adds a vector of at most one unit of length.
struct Release {
  double noise_multiplier = 0;  // standard deviation of the noise in units of the sensitivity
  /// The probability with which a participant takes part, drawn for each participant alone and kept
  /// secret (Poisson sampling). 1: everyone, or participants chosen in another way.
  double sampling_rate = 1;
};

/// RDP of order `alpha` > 1 of one release, for neighbouring data sets that differ by one
/// participant. Infinite without noise.
double rdp_of(const Release& release, double alpha);

/// Adds up releases. Not thread-safe. Copies are cheap.
class Accountant {
 public:
  Accountant();
  /// kInvalid: the noise is not positive, the rate is not in (0, 1], or `count` is negative.
  Status add(const Release& release, std::int64_t count = 1);
  /// The least epsilon over all orders for which the releases so far are (epsilon, delta)
  /// differentially private. 0 before the first release. `delta` in (0, 1).
  double epsilon(double delta) const;

  enum class Conversion { kMironov2017, kCanonne2020 };
  /// The same by a named formula, for comparison with published tables.
  double epsilon(double delta, Conversion conversion) const;

  /// The sums for each order, to save and restore. kInvalid: another number of sums, or a sum that
  /// is negative or not a number.
  const std::vector<double>& sums() const { return sums_; }
  Status restore(std::vector<double> sums);

 private:
  std::vector<double> sums_;
};

/// The orders of an Accountant.
const std::vector<double>& orders();

}  // namespace varda::privacy
