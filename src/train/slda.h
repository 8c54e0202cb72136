// A last layer that learns from one sample at a time: DeepSLDA (Hayes and Kanan 2020, "Lifelong
// Machine Learning with Deep Streaming Linear Discriminant Analysis").
//
//   StreamingLda lda(features);
//   lda.update(z, label);                          // D^2 operations
//   TRY(const LinearLayer layer, lda.layer(1e-4, classes));  // D^3 / 3 operations
//
// With the number t of samples so far, the class mean m and the number c of the class:
//
//   S = (t * S + t / (t + 1) * (z - m) (z - m)^T) / (t + 1)     equation 3, m before the update
//   m = (c * m + z) / (c + 1)                                   equation 2
//   L = ((1 - e) * S + e * I)^-1,  w = L m,  b = -1/2 * m^T L m  equations 4 to 6, e: shrinkage
//
// The first sample of a class has no mean to differ from. The paper uses the mean 0 then, which
// adds the class's distance from 0 to the covariance; here such a sample leaves S as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace varda::train {

/// scores = x * weights + bias.
struct LinearLayer {
  std::size_t inputs = 0, classes = 0;
  std::vector<float> weights;  // [inputs, classes]
  std::vector<float> bias;
};

/// Not thread-safe. The same updates in the same order give the same bytes.
class StreamingLda {
 public:
  static constexpr std::size_t kFeaturesMax = 4096, kClassesMax = 100'000;

  /// `features` is from 1 to kFeaturesMax.
  explicit StreamingLda(std::size_t features);

  std::size_t features() const { return features_; }
  std::size_t classes() const { return counts_.size(); }
  std::uint64_t samples() const { return samples_; }
  /// Samples by class; a class above the last one has none.
  const std::vector<std::uint64_t>& counts() const { return counts_; }

  /// A label above the last class adds classes. kInvalid: another number of features, a value that
  /// is not finite, or a label out of range; nothing changes then.
  Status update(std::span<const float> features, std::int64_t label);

  /// A class without samples gets the weights 0, and a bias below all other scores of the samples'
  /// means, so that it is never the answer for them. kInvalid: no samples, or a shrinkage outside
  /// of 0 to 1, or the covariance is singular.
  Result<LinearLayer> layer(double shrinkage, std::size_t classes) const;

  /// The state: counts, means, and the lower half of the covariance, all in FP64.
  std::string encode() const;
  /// kCorrupt: not a state, or damaged.
  static Result<StreamingLda> decode(std::string_view bytes);

 private:
  std::size_t features_;
  std::uint64_t samples_ = 0;
  std::vector<std::uint64_t> counts_;
  std::vector<double> means_;       // [classes, features]
  std::vector<double> covariance_;  // the rows of the lower half
  std::vector<double> difference_;  // of update()
};

}  // namespace varda::train
