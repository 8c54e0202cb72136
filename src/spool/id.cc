#include "spool/id.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

namespace varda::spool {
namespace {

constexpr std::string_view kDigits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
constexpr std::size_t kIdBytes = 26, kTimeDigits = 10, kRandomDigits = 8;

void put(std::string& out, std::uint64_t value, std::size_t digits) {
  for (std::size_t i = digits; i-- > 0;) out += kDigits[(value >> (5 * i)) & 31U];
}

}  // namespace

std::string new_id(WallTime now, Rng& rng) {
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  std::string out;
  out.reserve(kIdBytes);
  put(out, static_cast<std::uint64_t>(std::max<std::int64_t>(since.count(), 0)), kTimeDigits);
  put(out, rng.next(), kRandomDigits);
  put(out, rng.next(), kRandomDigits);
  return out;
}

bool is_id(std::string_view text) {
  // The first digit holds 3 bits: a larger one is no time of 48 bits.
  return text.size() == kIdBytes && text.front() <= '7' &&
         text.find_first_not_of(kDigits) == std::string_view::npos;
}

WallTime time_of(std::string_view id) {
  CHECK(is_id(id));
  std::uint64_t value = 0;
  for (const char digit : id.substr(0, kTimeDigits)) value = value * 32 + kDigits.find(digit);
  return WallTime(std::chrono::milliseconds(value));
}

std::string time_text(WallTime time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch());
  const auto seconds = static_cast<std::time_t>(ms.count() / 1000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> day{};
  std::strftime(day.data(), day.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::array<char, 48> out{};
  std::snprintf(out.data(), out.size(), "%s.%03dZ", day.data(),
                static_cast<int>(ms.count() % 1000));
  return out.data();
}

}  // namespace varda::spool
