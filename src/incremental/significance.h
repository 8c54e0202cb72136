// Tests of the difference between two models on the same samples.
#pragma once

#include <cstdint>
#include <span>

namespace varda::incremental {

enum class McNemarTest : std::uint8_t { kMidP, kExact, kChiSquare, kCorrectedChiSquare };

/// The two-sided probability of such different counts if both models are equally good.
/// `only_base` and `only_candidate` count the samples that only one of the models has right.
/// 1 if both are 0; negative counts count as 0.
///
/// The exact test uses the binomial distribution. mid-p: M. W. Fagerland, S. Lydersen, P. Laake,
/// BMC Medical Research Methodology 13:91 (2013). Chi-square: Q. McNemar, Psychometrika 12 (1947);
/// corrected for continuity: A. L. Edwards, Psychometrika 13 (1948).
double mcnemar(std::int64_t only_base, std::int64_t only_candidate, McNemarTest test);

struct BootstrapResult {
  double mean = 0;  // of the gains
  // One-sided: share of resampled means that are not above 0, (r + 1) / (n + 1).
  double probability = 1;
};
/// The paired bootstrap over gains by sample. B. Efron, R. J. Tibshirani, An Introduction to the
/// Bootstrap (1993), chapter 16; the + 1 as in A. C. Davison, D. V. Hinkley (1997), section 4.2.
/// Equal arguments give equal results on every machine.
BootstrapResult paired_bootstrap(std::span<const double> gains, std::int64_t resamples,
                                 std::uint64_t seed);

}  // namespace varda::incremental
