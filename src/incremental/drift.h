// Distances between two distributions of a score, and a detector for a falling mean.
//
// A histogram has the counts of equal bins over [0, 1].
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codec/json.h"

namespace varda::incremental {

using Histogram = std::vector<std::int64_t>;
inline constexpr std::size_t kBinsMax = 64;

std::int64_t total(std::span<const std::int64_t> histogram);
/// The mean of the score, with each sample at the middle of its bin; 0 without samples.
double mean_score(std::span<const std::int64_t> histogram);

/// Population stability index: the sum of (p - q) ln(p / q) over the bins, with shares p and q.
/// Shares below 0.0001 count as 0.0001. 0 if a histogram is empty or the sizes differ.
/// N. Siddiqi, Credit Risk Scorecards (2006): below 0.1 no change, above 0.25 a large one.
double population_stability(std::span<const std::int64_t> reference,
                            std::span<const std::int64_t> recent);

struct KolmogorovSmirnov {
  double distance = 0;     // largest difference of the cumulative shares at the edges of bins
  double probability = 1;  // of a distance that large without a change
};
/// The two-sample test with the asymptotic distribution, argument as in M. A. Stephens,
/// J. R. Stat. Soc. B 32 (1970). Bins hide differences, so that the probability is an upper bound.
KolmogorovSmirnov kolmogorov_smirnov(std::span<const std::int64_t> reference,
                                     std::span<const std::int64_t> recent);

/// The Page-Hinkley test for a falling mean. E. S. Page, Biometrika 41 (1954); the form is that of
/// J. Gama et al., ACM Computing Surveys 46 (2014), with the sign for a decrease:
///
///   mean_t = mean of x_1 … x_t
///   sum_t = sum_(t-1) + mean_t - x_t - delta
///   statistic = sum_t - min(sum_1 … sum_t)
struct PageHinkley {
  std::int64_t count = 0;
  double mean = 0, sum = 0, minimum = 0;

  void add(double value, double delta);
  double statistic() const { return sum - minimum; }

  friend bool operator==(const PageHinkley&, const PageHinkley&) = default;
};
codec::Json to_json(const PageHinkley& detector);
PageHinkley page_hinkley_of(const codec::Json& json);

}  // namespace varda::incremental
