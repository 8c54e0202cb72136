#include "incremental/drift.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace varda::incremental {
namespace {

using codec::Json;

constexpr double kShareMin = 1e-4;
constexpr std::int64_t kPageHinkleyMax = 1'000'000'000'000;

bool comparable(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  return a.size() == b.size() && total(a) > 0 && total(b) > 0;
}

/// The complementary distribution function of Kolmogorov: 2 Σ (-1)^(j-1) exp(-2 j² λ²).
double kolmogorov_tail(double lambda) {
  // The series converges slowly below; the value there is 1 up to 1e-12.
  if (lambda < 0.2) return 1;
  double sum = 0, sign = 1;
  for (int j = 1; j <= 100; ++j) {
    const double term = std::exp(-2.0 * j * j * lambda * lambda);
    sum += sign * term;
    sign = -sign;
    if (term < 1e-16) break;
  }
  return std::clamp(2 * sum, 0.0, 1.0);
}

}  // namespace

std::int64_t total(std::span<const std::int64_t> histogram) {
  return std::accumulate(histogram.begin(), histogram.end(), std::int64_t{0});
}

double mean_score(std::span<const std::int64_t> histogram) {
  const auto count = static_cast<double>(total(histogram));
  if (count <= 0) return 0;
  double sum = 0;
  for (std::size_t i = 0; i < histogram.size(); ++i)
    sum += static_cast<double>(histogram[i]) * (static_cast<double>(i) + 0.5);
  return sum / count / static_cast<double>(histogram.size());
}

double population_stability(std::span<const std::int64_t> reference,
                            std::span<const std::int64_t> recent) {
  if (!comparable(reference, recent)) return 0;
  const auto before = static_cast<double>(total(reference));
  const auto after = static_cast<double>(total(recent));
  double sum = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double p = std::max(static_cast<double>(recent[i]) / after, kShareMin);
    const double q = std::max(static_cast<double>(reference[i]) / before, kShareMin);
    sum += (p - q) * std::log(p / q);
  }
  return sum;
}

KolmogorovSmirnov kolmogorov_smirnov(std::span<const std::int64_t> reference,
                                     std::span<const std::int64_t> recent) {
  KolmogorovSmirnov out;
  if (!comparable(reference, recent)) return out;
  const auto before = static_cast<double>(total(reference));
  const auto after = static_cast<double>(total(recent));
  std::int64_t p = 0, q = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    p += recent[i];
    q += reference[i];
    out.distance = std::max(
        out.distance, std::fabs(static_cast<double>(p) / after - static_cast<double>(q) / before));
  }
  const double root = std::sqrt(before * after / (before + after));
  out.probability = kolmogorov_tail((root + 0.12 + 0.11 / root) * out.distance);
  return out;
}

void PageHinkley::add(double value, double delta) {
  if (!std::isfinite(value)) return;
  ++count;
  mean += (value - mean) / static_cast<double>(count);
  sum += mean - value - delta;
  minimum = count == 1 ? sum : std::min(minimum, sum);
}

Json to_json(const PageHinkley& detector) {
  return Json::object({{"count", detector.count},
                       {"mean", detector.mean},
                       {"sum", detector.sum},
                       {"minimum", detector.minimum}});
}

PageHinkley page_hinkley_of(const Json& json) {
  PageHinkley out{.count = json["count"].as_integer(),
                  .mean = json["mean"].as_double(),
                  .sum = json["sum"].as_double(),
                  .minimum = json["minimum"].as_double()};
  const bool good = out.count >= 0 && out.count < kPageHinkleyMax && std::isfinite(out.mean) &&
                    std::isfinite(out.sum) && std::isfinite(out.minimum);
  return good ? out : PageHinkley{};
}

}  // namespace varda::incremental
