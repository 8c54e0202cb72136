// Checks of numbers on a command line. CLI11 alone reads "-1" as the largest unsigned number and
// "010" as eight. CLI11 also clamps numbers beyond 64 bits and accepts "nan" in every range. --help
// does not show these checks.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace varda::app {

/// Decimal digits, below 2^64, without leading zeros.
inline CLI::Validator whole_number() {
  const auto check = [](const std::string& text) -> std::string {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    const bool padded = text.size() > 1 && text.front() == '0';
    if (error == std::errc() && rest == end && !padded) return "";
    return "\"" + text + "\" is not a whole number from 0 to 2^64-1";
  };
  return CLI::Validator([check](std::string& text) { return check(text); }, "");
}

/// Neither "nan" nor "inf".
inline CLI::Validator finite_number() {
  const auto check = [](const std::string& text) -> std::string {
    double number = 0;
    if (CLI::detail::lexical_cast(text, number) && std::isfinite(number)) return "";
    return "\"" + text + "\" is not a finite number";
  };
  return CLI::Validator([check](std::string& text) { return check(text); }, "");
}

}  // namespace varda::app
