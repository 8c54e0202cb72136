// The Gaussian mechanism for one round of federated learning.
//
// DP-FedAvg (McMahan et al. 2018, arXiv:1710.06963): each update is cut to the length `clip`, all
// updates have the same weight, and the sum is divided by the number of clients that the round
// wants, which is public. A client that joins or leaves changes the mean by at most clip / clients:
// the sensitivity.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "privacy/accountant.h"
#include "privacy/key_agreement.h"

namespace varda::privacy {

/// The factor that cuts a vector of this length to `clip`.
double clip_factor(double norm, double clip);
/// Standard deviation of the noise in each coordinate of the mean. `clients` is the fixed divisor.
double central_deviation(double noise_multiplier, double clip, std::uint64_t clients);
/// Adds noise that depends on the seed alone.
void add_noise(const Key& seed, double deviation, std::span<float> values);
/// The same for the coordinates from `first` on, which is even. Blocks of a vector get the noise of
/// the whole vector.
void add_noise(const Key& seed, double deviation, std::uint64_t first, std::span<double> values);

/// The clip follows a quantile of the updates' lengths: Andrew et al. 2021, "Differentially Private
/// Learning with Adaptive Clipping" (arXiv:1905.03871), algorithm 1. Not thread-safe.
class AdaptiveClip {
 public:
  struct Options {
    double first_clip = 0.1;
    double quantile = 0.5;       // the share of updates that the clip leaves whole
    double learning_rate = 0.2;  // of the logarithm of the clip
    /// Standard deviation of the noise on the number of whole updates; 0: clients / 20.
    double count_deviation = 0;
  };
  /// kInvalid: a value out of range.
  static Result<AdaptiveClip> of(const Options& options);

  double clip() const { return clip_; }
  void restore(double clip) { clip_ = clip; }
  double count_deviation(std::uint64_t clients) const;
  struct Count {
    std::uint64_t whole = 0;     // updates not longer than the clip
    std::uint64_t received = 0;  // updates in the sum
    std::uint64_t clients = 1;   // the fixed divisor
  };
  /// Too many whole updates make the clip smaller. A whole update counts 1/2, a cut one -1/2, and
  /// an absent client 0: one client changes the count by at most 1/2.
  void update(const Count& count, double standard_normal);

  /// The noise multiplier for the updates, so that updates and count together cost as much as one
  /// release with `noise_multiplier`. kInvalid: the noise of the count is too small for that.
  Result<double> update_multiplier(double noise_multiplier, std::uint64_t clients) const;

 private:
  explicit AdaptiveClip(const Options& options) : options_(options), clip_(options.first_clip) {}
  Options options_;
  double clip_;
};

/// Local differential privacy: the client adds noise before the update leaves the node. Two updates
/// of at most `clip` differ by 2 * clip, so the standard deviation is 2 * clip * noise_multiplier.
double local_deviation(double noise_multiplier, double clip);

}  // namespace varda::privacy
