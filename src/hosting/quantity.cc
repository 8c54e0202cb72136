// The rules are those of resource.Quantity (k8s.io/apimachinery/pkg/api/resource). The suffix is
// the largest that leaves a whole number. It is a power of 1024 if the writer used one and the
// amount is at least 1024. Thousandths are rounded up. The maximum is 2^63 - 1.
#include "hosting/quantity.h"

#include <limits>

namespace varda::hosting {

namespace {

using Wide = __int128;

struct Suffix {
  std::string_view text;
  Wide milli;  // thousandths in one unit
  bool binary = false;
};

constexpr Wide kKi = 1024;
constexpr Suffix kSuffixes[] = {{"", 1000},
                                {"m", 1},
                                {"k", Wide{1000} * 1000},
                                {"M", Wide{1000} * 1000000},
                                {"G", Wide{1000} * 1000000000},
                                {"T", Wide{1000} * 1000000000000},
                                {"Ki", 1000 * kKi, true},
                                {"Mi", 1000 * kKi* kKi, true},
                                {"Gi", 1000 * kKi* kKi* kKi, true},
                                {"Ti", 1000 * kKi* kKi* kKi* kKi, true}};

std::string print(Wide amount) {  // >= 0
  std::string out;
  do {
    out.insert(out.begin(), static_cast<char>('0' + static_cast<int>(amount % 10)));
    amount /= 10;
  } while (amount > 0);
  return out;
}

std::string with_suffix(Wide amount, Wide factor, const std::string_view (&suffixes)[7]) {
  std::size_t power = 0;
  while (amount != 0 && amount % factor == 0 && power + 1 < std::size(suffixes)) {
    amount /= factor;
    ++power;
  }
  return print(amount) + std::string(suffixes[power]);
}

}  // namespace

std::string canonical_quantity(std::string_view text) {
  const std::string unchanged(text);
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, end), unit = text.substr(end);
  const Suffix* suffix = nullptr;
  for (const Suffix& one : kSuffixes) {
    if (one.text == unit) suffix = &one;
  }
  if (number.empty() || number.size() > 20 || suffix == nullptr) return unchanged;

  Wide digits = 0, scale = 1;
  bool fraction = false;
  for (const char c : number) {
    if (c == '.') {
      if (fraction) return unchanged;
      fraction = true;
      continue;
    }
    digits = digits * 10 + (c - '0');
    if (fraction) scale *= 10;
    if (digits > Wide{1000000000000000000}) return unchanged;
  }
  Wide milli = (digits * suffix->milli + scale - 1) / scale;
  const Wide most = Wide{std::numeric_limits<std::int64_t>::max()} * 1000;
  if (milli > most) milli = most;

  const bool whole = milli % 1000 == 0;
  if (suffix->binary && whole && milli >= 1000 * kKi) {
    return with_suffix(milli / 1000, kKi, {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"});
  }
  if (!whole) return print(milli) + "m";
  return with_suffix(milli / 1000, 1000, {"", "k", "M", "G", "T", "P", "E"});
}

}  // namespace varda::hosting
