#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <limits>
#include <optional>

#include "apiserver/kinds/types.h"

namespace varda::apiserver {

namespace {

using Wide = __int128;

constexpr Wide kNano = 1'000'000'000;
constexpr Wide kBinaryMax = kNano * std::numeric_limits<std::int64_t>::max();

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
  bool binary = false;
  bool scientific = false;
  std::optional<Wide> nano;  // in billionths, without the sign; absent: scientific, beyond 128 bits
};

/// One unit of the exponent in billionths. Nothing: outside of 1e-9 to 1e20.
std::optional<Wide> scale_of(std::string_view exponent) {
  const bool negative = exponent.starts_with("-");
  if (negative || exponent.starts_with("+")) exponent.remove_prefix(1);
  int number = 0;
  for (const char digit : exponent) number = std::min(number * 10 + (digit - '0'), 1000);
  if (negative) return number > 9 ? std::nullopt : std::optional(power(10, 9 - number));
  return number > 20 ? std::nullopt : std::optional(power(10, 9 + number));
}

Result<Amount> amount_of(std::string_view text) {
  const Error bad(Code::kInvalid,
                  "quantities must match the regular expression "
                  "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'");
  std::string_view rest = text;
  const bool negative = rest.starts_with("-");
  if (negative || rest.starts_with("+")) rest.remove_prefix(1);
  Wide whole = 0;
  Wide fraction = 0;
  Wide unit = 1;  // divisor of the fraction
  bool point = false;
  bool digits = false;
  for (; !rest.empty() &&
         (std::isdigit(static_cast<unsigned char>(rest[0])) != 0 || (rest[0] == '.' && !point));
       rest.remove_prefix(1)) {
    if (rest[0] == '.') {
      point = true;
      continue;
    }
    digits = true;
    Wide& part = point ? fraction : whole;
    if (__builtin_mul_overflow(part, 10, &part) ||
        __builtin_add_overflow(part, rest[0] - '0', &part))
      return bad;
    if (point && __builtin_mul_overflow(unit, 10, &unit)) return bad;
  }
  if (!digits) return bad;
  const Suffix* suffix = nullptr;
  for (const Suffix& known : kSuffixes) {
    if (known.name == rest) suffix = &known;
  }
  if (suffix == nullptr && rest.size() > 1 && (rest[0] == 'e' || rest[0] == 'E')) {
    std::string_view exponent = rest.substr(1);
    if (exponent[0] == '-' || exponent[0] == '+') exponent.remove_prefix(1);
    if (exponent.empty() || exponent.find_first_not_of("0123456789") != std::string_view::npos)
      return bad;
    Amount out{.negative = negative, .scientific = true};
    const std::optional<Wide> scale = scale_of(rest.substr(1));
    Wide nano = 0;
    Wide rest_nano = 0;
    if (scale && !__builtin_mul_overflow(fraction, *scale, &rest_nano) &&
        !__builtin_mul_overflow(whole, *scale, &nano) &&
        !__builtin_add_overflow(nano, rest_nano / unit, &nano)) {
      out.nano = nano;
    }
    return out;
  }
  if (suffix == nullptr) return bad;
  // Like Kubernetes, rounds up below a billionth, and caps amounts in powers of 1024. Other amounts
  // beyond 128 bits are rejected.
  Wide nano = 0;
  Wide rest_nano = 0;
  if (__builtin_mul_overflow(fraction, suffix->nano, &rest_nano) ||
      __builtin_add_overflow(rest_nano, unit - 1, &rest_nano))
    return bad;
  const bool beyond = __builtin_mul_overflow(whole, suffix->nano, &nano) ||
                      __builtin_add_overflow(nano, rest_nano / unit, &nano);
  if (beyond && !suffix->binary) return bad;
  if (suffix->binary && (beyond || nano > kBinaryMax)) nano = kBinaryMax;
  return Amount{.negative = negative, .binary = suffix->binary, .nano = nano};
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

Result<std::string> canonical_quantity(std::string_view text) {
  TRY(const Amount amount, amount_of(text));
  if (amount.scientific) return std::string(text);  // kept as written
  const Wide nano = *amount.nano;
  const std::string sign = amount.negative && nano != 0 ? "-" : "";
  const bool binary = amount.binary && nano >= 1024 * kNano && nano % kNano == 0;
  for (const Suffix& wanted : kSuffixes) {
    if (nano == 0) break;
    if ((wanted.binary != binary && !(binary && wanted.name.empty())) || nano % wanted.nano != 0)
      continue;
    return sign + digits_of(nano / wanted.nano) + std::string(wanted.name);
  }
  return std::string("0");
}

}  // namespace varda::apiserver
