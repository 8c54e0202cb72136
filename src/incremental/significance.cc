#include "incremental/significance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "base/rng.h"

namespace varda::incremental {
namespace {

/// ln n!. The C library's lgamma writes a global variable, so threads must not share it.
double log_factorial(std::int64_t n) {
  constexpr std::int64_t kExactMax = 128;
  if (n <= kExactMax) {
    double sum = 0;
    for (std::int64_t i = 2; i <= n; ++i) sum += std::log(static_cast<double>(i));
    return sum;
  }
  // Stirling's series, with an error below 1e-16 here.
  const auto x = static_cast<double>(n) + 1;
  constexpr double kHalfLogTwoPi = 0.91893853320467274178;
  const double inverse = 1 / (x * x);
  return (x - 0.5) * std::log(x) - x + kHalfLogTwoPi +
         (1.0 / 12 - (1.0 / 360 - inverse / 1260) * inverse) / x;
}

/// The probability of exactly `k` of `n` fair coins.
double coin_probability(std::int64_t k, std::int64_t n) {
  return std::exp(log_factorial(n) - log_factorial(k) - log_factorial(n - k) -
                  static_cast<double>(n) * std::log(2.0));
}

/// The probability of at most `k` of `n` fair coins, for k <= n / 2. The terms fall towards 0, so
/// that the loop ends after some multiples of sqrt(n).
double coin_tail(std::int64_t k, std::int64_t n) {
  const double first = coin_probability(k, n);
  double term = first, sum = first;
  for (std::int64_t i = k; i > 0 && term > 0; --i) {
    term *= static_cast<double>(i) / static_cast<double>(n - i + 1);
    sum += term;
    if (term < sum * 1e-17) break;
  }
  return sum;
}

// An operator judges within a second: long lists are resampled less often.
constexpr std::int64_t kDrawsMax = 20'000'000, kResamplesMin = 200;

/// The upper tail of chi-square with one degree of freedom.
double chi_square_tail(double x) { return std::erfc(std::sqrt(x / 2)); }

}  // namespace

double mcnemar(std::int64_t only_base, std::int64_t only_candidate, McNemarTest test) {
  const std::int64_t low = std::max<std::int64_t>(0, std::min(only_base, only_candidate));
  const std::int64_t high = std::max<std::int64_t>(0, std::max(only_base, only_candidate));
  const std::int64_t n = low + high;
  if (n == 0) return 1;
  const auto difference = static_cast<double>(high - low);
  switch (test) {
    case McNemarTest::kExact:
      return std::min(1.0, 2 * coin_tail(low, n));
    case McNemarTest::kMidP:
      if (low == high) return 1 - 0.5 * coin_probability(low, n);
      return std::clamp(2 * coin_tail(low, n) - coin_probability(low, n), 0.0, 1.0);
    case McNemarTest::kChiSquare:
      return chi_square_tail(difference * difference / static_cast<double>(n));
    case McNemarTest::kCorrectedChiSquare: {
      const double corrected = std::max(0.0, difference - 1);
      return chi_square_tail(corrected * corrected / static_cast<double>(n));
    }
  }
  return 1;
}

BootstrapResult paired_bootstrap(std::span<const double> gains, std::int64_t resamples,
                                 std::uint64_t seed) {
  BootstrapResult out;
  if (gains.empty() || resamples < 1) return out;
  double sum = 0;
  for (const double gain : gains) sum += gain;
  out.mean = sum / static_cast<double>(gains.size());
  resamples = std::clamp<std::int64_t>(kDrawsMax / static_cast<std::int64_t>(gains.size()),
                                       std::min(kResamplesMin, resamples), resamples);
  const std::unique_ptr<Rng> rng = seeded_rng(seed);
  std::int64_t not_above = 0;
  for (std::int64_t i = 0; i < resamples; ++i) {
    double resampled = 0;
    for (std::size_t j = 0; j < gains.size(); ++j) resampled += gains[rng->below(gains.size())];
    not_above += resampled > 0 ? 0 : 1;
  }
  out.probability = static_cast<double>(not_above + 1) / static_cast<double>(resamples + 1);
  return out;
}

}  // namespace varda::incremental
