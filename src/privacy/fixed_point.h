// Real numbers as integers modulo 2^32, so that masked values can be added exactly.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "privacy/mask.h"

namespace varda::privacy {

/// Constant; thread-safe.
class FixedPoint {
 public:
  /// For sums of at most `terms` values in [-limit, limit]: the scale is the largest one with which
  /// no sum overflows. kInvalid: a limit that is not positive, or terms outside of 1 … 2^20.
  static Result<FixedPoint> of(double limit, std::uint64_t terms);

  double limit() const { return limit_; }
  /// The distance of neighbouring values.
  double step() const { return 1 / scale_; }
  /// Values beyond the limit are cut to it. Rounding is stochastic, so that its mean is 0. CHECKs
  /// equal sizes.
  void encode(std::span<const float> values, double factor, KeyStream& random,
              std::span<std::uint32_t> out) const;
  std::uint32_t encode(double value) const;  // rounds to the nearest
  /// A sum of encoded values.
  double decode(std::uint32_t sum) const {
    return static_cast<double>(static_cast<std::int32_t>(sum)) / scale_;
  }

 private:
  FixedPoint(double limit, double scale) : limit_(limit), scale_(scale) {}
  double limit_, scale_;
};

}  // namespace varda::privacy
