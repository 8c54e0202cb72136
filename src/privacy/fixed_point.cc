#include "privacy/fixed_point.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

#include "base/check.h"

namespace varda::privacy {

Result<FixedPoint> FixedPoint::of(double limit, std::uint64_t terms) {
  if (!(limit > 0) || !std::isfinite(limit))
    return Error(Code::kInvalid,
                 "the limit of values is " + std::to_string(limit) + ": must be positive");
  if (terms < 1 || terms > (1U << 20))
    return Error(Code::kInvalid, "a sum has 1 to 1048576 terms, not " + std::to_string(terms));
  // Rounding may add one step to each term.
  const double room = 0x1p31 - 1 - static_cast<double>(terms);
  return FixedPoint(limit, room / (limit * static_cast<double>(terms)));
}

std::uint32_t FixedPoint::encode(double value) const {
  const double scaled = std::clamp(value, -limit_, limit_) * scale_;
  return static_cast<std::uint32_t>(static_cast<std::int64_t>(std::nearbyint(scaled)));
}

void FixedPoint::encode(std::span<const float> values, double factor, KeyStream& random,
                        std::span<std::uint32_t> out) const {
  CHECK(values.size() == out.size());
  std::uint32_t bits[4096];
  for (std::size_t first = 0; first < values.size(); first += std::size(bits)) {
    const std::size_t count = std::min(std::size(bits), values.size() - first);
    random.fill({reinterpret_cast<std::uint8_t*>(bits), count * sizeof(bits[0])});
    for (std::size_t i = 0; i < count; ++i) {
      // NaN has no order, so std::clamp would keep it.
      double value = static_cast<double>(values[first + i]) * factor;
      value = value > limit_ ? limit_ : value > -limit_ ? value : -limit_;
      const double rounded = std::floor(value * scale_ + bits[i] * 0x1p-32);
      out[first + i] = static_cast<std::uint32_t>(static_cast<std::int64_t>(rounded));
    }
  }
}

}  // namespace varda::privacy
