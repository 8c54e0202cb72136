// The rules are those of resource.Quantity (k8s.io/apimachinery/pkg/api/resource).
#include "meta/quantity.h"

#include <array>
#include <limits>

#include "base/text.h"

namespace varda::meta {

namespace {

using Wide = __int128;

constexpr Wide kNano = 1'000'000'000;
constexpr Wide kBinaryMax = kNano * std::numeric_limits<std::int64_t>::max();

enum class Family { kDecimal, kBinary, kExponent };

struct Suffix {
  std::string_view name;
  Wide nano;  // one unit, in billionths
  bool binary;
};

constexpr Wide power(Wide base, int exponent) {
  Wide result = 1;
  for (int i = 0; i < exponent; ++i) result *= base;
  return result;
}

constexpr std::array<Suffix, 16> kSuffixes = {{{"Ei", power(1024, 6) * kNano, true},
                                               {"Pi", power(1024, 5) * kNano, true},
                                               {"Ti", power(1024, 4) * kNano, true},
                                               {"Gi", power(1024, 3) * kNano, true},
                                               {"Mi", power(1024, 2) * kNano, true},
                                               {"Ki", 1024 * kNano, true},
                                               {"E", power(1000, 6) * kNano, false},
                                               {"P", power(1000, 5) * kNano, false},
                                               {"T", power(1000, 4) * kNano, false},
                                               {"G", power(1000, 3) * kNano, false},
                                               {"M", power(1000, 2) * kNano, false},
                                               {"k", 1000 * kNano, false},
                                               {"", kNano, false},
                                               {"m", 1'000'000, false},
                                               {"u", 1000, false},
                                               {"n", 1, false}}};

std::string digits_of(Wide value) {
  if (value == 0) return "0";
  std::string text;
  for (; value > 0; value /= 10)
    text.insert(text.begin(), static_cast<char>('0' + static_cast<int>(value % 10)));
  return text;
}

struct Amount {
  bool negative = false;
  Family family = Family::kDecimal;
  std::optional<Wide> nano;  // billionths, without the sign; absent: an exponent beyond 128 bits
};

// The digits before the suffix: (whole + fraction / unit).
struct Number {
  Wide whole = 0, fraction = 0, unit = 1;

  /// In billionths, rounded up, for one unit of `scale` billionths. Nothing: beyond 128 bits.
  std::optional<Wide> times(Wide scale) const {
    Wide nano = 0, part = 0;
    if (__builtin_mul_overflow(fraction, scale, &part) ||
        __builtin_add_overflow(part, unit - 1, &part) ||
        __builtin_mul_overflow(whole, scale, &nano) ||
        __builtin_add_overflow(nano, part / unit, &nano))
      return std::nullopt;
    return nano;
  }
};

// The amount in billionths, for a decimal exponent.
std::optional<Wide> times_power_of_ten(const Number& number, int exponent) {
  constexpr int kDigits = 9;  // of a billionth
  if (exponent >= -kDigits)
    return exponent > 20 ? std::nullopt : number.times(power(10, kDigits + exponent));
  Number smaller = number;
  for (int i = exponent; i < -kDigits; ++i) {
    // Digits that move behind the point are below a billionth: only zero or more counts.
    const Wide digit = smaller.whole % 10;
    smaller.whole /= 10;
    if (digit != 0 || smaller.fraction != 0) {
      smaller.fraction = 1;
      smaller.unit = 10;
    }
    if (smaller.whole == 0) break;
  }
  return smaller.times(1);
}

Result<Amount> amount_of(std::string_view text) {
  const Error bad(Code::kInvalid,
                  "quantities must match the regular expression "
                  "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'");
  std::string_view rest = text;
  Amount out{.negative = rest.starts_with("-")};
  if (out.negative || rest.starts_with("+")) rest.remove_prefix(1);
  Number number;
  bool point = false;
  bool digits = false;
  for (; !rest.empty() && ((rest[0] >= '0' && rest[0] <= '9') || (rest[0] == '.' && !point));
       rest.remove_prefix(1)) {
    if (rest[0] == '.') {
      point = true;
      continue;
    }
    digits = true;
    Wide& part = point ? number.fraction : number.whole;
    if (__builtin_mul_overflow(part, 10, &part) ||
        __builtin_add_overflow(part, rest[0] - '0', &part))
      return bad;
    if (point && __builtin_mul_overflow(number.unit, 10, &number.unit)) return bad;
  }
  if (!digits) return bad;
  for (const Suffix& suffix : kSuffixes) {
    if (suffix.name != rest) continue;
    out.nano = number.times(suffix.nano);
    if (!suffix.binary && !out.nano) return bad;
    if (!suffix.binary) return out;
    // Like Kubernetes, caps amounts in powers of 1024.
    out.family = Family::kBinary;
    if (!out.nano || *out.nano > kBinaryMax) out.nano = kBinaryMax;
    return out;
  }
  if (rest.empty() || lower(rest[0]) != 'e') return bad;
  std::string_view exponent = rest.substr(1);
  if (exponent.starts_with("+") && !exponent.starts_with("+-")) exponent.remove_prefix(1);
  const std::string_view magnitude = exponent.substr(exponent.starts_with("-") ? 1 : 0);
  if (magnitude.empty() || magnitude.find_first_not_of("0123456789") != std::string_view::npos)
    return bad;
  out.family = Family::kExponent;
  if (const auto value = parse_integer<int>(exponent))
    out.nano = times_power_of_ten(number, *value);
  return out;
}

// Exponents are multiples of three.
std::string with_exponent(Wide nano) {
  int exponent = -9;
  for (; nano != 0 && nano % 1000 == 0; nano /= 1000) exponent += 3;
  if (nano == 0) return "0";
  return digits_of(nano) + (exponent == 0 ? "" : "e" + std::to_string(exponent));
}

}  // namespace

bool exceeds(std::string_view amount, std::string_view limit) {
  const auto signed_nano = [](std::string_view text) -> std::optional<Wide> {
    const Result<Amount> found = amount_of(text);
    if (!found.ok() || !found->nano) return std::nullopt;
    return found->negative ? -*found->nano : *found->nano;
  };
  const std::optional<Wide> a = signed_nano(amount), b = signed_nano(limit);
  return a && b && *a > *b;
}

std::optional<std::int64_t> quantity_millis(std::string_view text) {
  const Result<Amount> found = amount_of(text);
  if (!found.ok() || !found->nano || found->negative) return std::nullopt;
  constexpr Wide kMilli = 1'000'000;
  const Wide millis = *found->nano / kMilli + (*found->nano % kMilli != 0 ? 1 : 0);
  if (millis > std::numeric_limits<std::int64_t>::max()) return std::nullopt;
  return static_cast<std::int64_t>(millis);
}

std::optional<double> quantity_value(std::string_view text) {
  const Result<Amount> found = amount_of(text);
  if (!found.ok() || !found->nano) return std::nullopt;
  const double value = static_cast<double>(*found->nano) / static_cast<double>(kNano);
  return found->negative ? -value : value;
}

Result<std::string> canonical_quantity(std::string_view text) {
  TRY(const Amount amount, amount_of(text));
  if (!amount.nano) return std::string(text);  // kept as written
  const Wide nano = *amount.nano;
  const std::string sign = amount.negative && nano != 0 ? "-" : "";
  if (amount.family == Family::kExponent) return sign + with_exponent(nano);
  const bool binary = amount.family == Family::kBinary && nano >= 1024 * kNano && nano % kNano == 0;
  for (const Suffix& wanted : kSuffixes) {
    if (nano == 0) break;
    if ((wanted.binary != binary && !(binary && wanted.name.empty())) || nano % wanted.nano != 0)
      continue;
    return sign + digits_of(nano / wanted.nano) + std::string(wanted.name);
  }
  return std::string("0");
}

}  // namespace varda::meta
