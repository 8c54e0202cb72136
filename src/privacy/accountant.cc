#include "privacy/accountant.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace varda::privacy {

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// log(exp(a) + exp(b))
double log_sum(double a, double b) {
  if (a < b) std::swap(a, b);
  return b == -kInfinite ? a : a + std::log1p(std::exp(b - a));
}

/// log(exp(a) - exp(b)) for a >= b
double log_difference(double a, double b) {
  if (b == -kInfinite) return a;
  return a <= b ? -kInfinite : a + std::log1p(-std::exp(b - a));
}

double log_binomial(double n, double k) {
  return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1);
}

/// log(erfc(x)). erfc() is 0 beyond 26, where its asymptotic series has three good terms.
double log_erfc(double x) {
  if (x < 20) return std::log(std::erfc(x));
  const double square = x * x;
  return -square - std::log(x * std::sqrt(M_PI)) +
         std::log1p(-1 / (2 * square) + 3 / (4 * square * square));
}

/// log A of an integer order: the binomial sum of equation (2) of the paper.
double log_moment_of_integer(double q, double sigma, std::int64_t alpha) {
  double sum = -kInfinite;
  for (std::int64_t k = 0; k <= alpha; ++k) {
    const auto i = static_cast<double>(k), n = static_cast<double>(alpha);
    sum = log_sum(sum, log_binomial(n, i) + i * std::log(q) + (n - i) * std::log1p(-q) +
                           (i * i - i) / (2 * sigma * sigma));
  }
  return sum;
}

/// log A of any order: two series, one for each side of the point where both densities are equal.
/// The binomial coefficients alternate in sign beyond the order, so sums of both signs are kept.
double log_moment(double q, double sigma, double alpha) {
  constexpr double kNegligible = -30;  // a term that changes no digit of epsilon
  const double middle = sigma * sigma * std::log(1 / q - 1) + 0.5;
  const double root = std::sqrt(2.0) * sigma, variance = 2 * sigma * sigma;
  double positive = -kInfinite, negative = -kInfinite;
  double log_coefficient = 0;  // of |binomial(alpha, i)|
  bool is_positive = true;
  for (int i = 0; i < 100'000; ++i) {
    const double j = alpha - i;
    const double first = log_coefficient + i * std::log(q) + j * std::log1p(-q) +
                         (double(i) * i - i) / variance + std::log(0.5) +
                         log_erfc((i - middle) / root);
    const double second = log_coefficient + j * std::log(q) + i * std::log1p(-q) +
                          (j * j - j) / variance + std::log(0.5) + log_erfc((middle - j) / root);
    double& sum = is_positive ? positive : negative;
    sum = log_sum(sum, log_sum(first, second));
    if (i > alpha && std::max(first, second) < kNegligible) break;
    // binomial(alpha, i + 1) = binomial(alpha, i) * (alpha - i) / (i + 1)
    const double factor = j / (i + 1.0);
    if (factor == 0) break;
    if (factor < 0) is_positive = !is_positive;
    log_coefficient += std::log(std::abs(factor));
  }
  return log_difference(positive, negative);
}

}  // namespace

const std::vector<double>& orders() {
  static const std::vector<double> all = [] {
    std::vector<double> out;
    for (int tenth = 11; tenth < 110; ++tenth) out.push_back(tenth / 10.0);
    for (int whole = 11; whole < 64; ++whole) out.push_back(whole);
    for (int large = 64; large <= 8192; large *= 2) {
      out.push_back(large);
      out.push_back(large * 3 / 2);
    }
    return out;
  }();
  return all;
}

double rdp_of(const Release& release, double alpha) {
  const double q = release.sampling_rate, sigma = release.noise_multiplier;
  if (sigma <= 0) return kInfinite;
  if (q >= 1) return alpha / (2 * sigma * sigma);
  const bool whole = alpha == std::floor(alpha);
  const double moment = whole ? log_moment_of_integer(q, sigma, static_cast<std::int64_t>(alpha))
                              : log_moment(q, sigma, alpha);
  // Rounding may leave a moment just below 1.
  return std::max(0.0, moment / (alpha - 1));
}

Accountant::Accountant() : sums_(orders().size(), 0.0) {}

Status Accountant::add(const Release& release, std::int64_t count) {
  if (!(release.noise_multiplier > 0) || !std::isfinite(release.noise_multiplier))
    return Error(Code::kInvalid, "the noise multiplier is " +
                                     std::to_string(release.noise_multiplier) +
                                     ": must be positive");
  if (!(release.sampling_rate > 0 && release.sampling_rate <= 1))
    return Error(Code::kInvalid, "the sampling rate is " + std::to_string(release.sampling_rate) +
                                     ": must be above 0 and at most 1");
  if (count < 0)
    return Error(Code::kInvalid,
                 "the number of releases is " + std::to_string(count) + ": must not be negative");
  for (std::size_t i = 0; i < sums_.size(); ++i)
    sums_[i] += static_cast<double>(count) * rdp_of(release, orders()[i]);
  return {};
}

double Accountant::epsilon(double delta) const { return epsilon(delta, Conversion::kCanonne2020); }

double Accountant::epsilon(double delta, Conversion conversion) const {
  double best = kInfinite;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const double alpha = orders()[i];
    if (sums_[i] == 0) return 0;
    const double epsilon =
        conversion == Conversion::kMironov2017
            ? sums_[i] - std::log(delta) / (alpha - 1)
            : sums_[i] + std::log1p(-1 / alpha) - (std::log(delta) + std::log(alpha)) / (alpha - 1);
    best = std::min(best, epsilon);
  }
  return std::max(0.0, best);
}

Status Accountant::restore(std::vector<double> sums) {
  if (sums.size() != sums_.size())
    return Error(Code::kInvalid, "the accountant has " + std::to_string(sums_.size()) +
                                     " orders, not " + std::to_string(sums.size()));
  for (const double sum : sums) {
    if (!(sum >= 0)) return Error(Code::kInvalid, "a sum of the accountant is negative");
  }
  sums_ = std::move(sums);
  return {};
}

}  // namespace varda::privacy
