// Amounts of resources as Kubernetes writes them: "500m", "1.5Gi", "2e3".
//
// Suffixes: n, u, m, k, M, G, T, P, E for powers of 1000, Ki to Ei for powers of 1024, and decimal
// exponents. Calculations are exact, in billionths; smaller parts are rounded up.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::meta {

/// The form in which an API server returns the amount: "1000m" is "1", "1024Mi" is "1Gi", "0.5" is
/// "500m", "10e2" is "1e3". The suffix is the largest that leaves a whole number, of the family
/// that the text uses. Amounts with suffixes of 1024 are at most 2^63 - 1. kInvalid: another text,
/// or beyond 128 bits.
Result<std::string> canonical_quantity(std::string_view text);

/// Compares two quantities exactly. False also if either is no quantity or is beyond 128 bits.
bool exceeds(std::string_view amount, std::string_view limit);

/// The amount in thousandths, rounded up: "250m" is 250, "1Ki" 1024000. Nothing: malformed,
/// negative, or beyond 64 bits.
std::optional<std::int64_t> quantity_millis(std::string_view text);
/// The amount as the nearest double. Nothing: malformed, or beyond 128 bits.
std::optional<double> quantity_value(std::string_view text);

}  // namespace varda::meta
