// ASCII text: letter case, blanks, lists and numbers. Bytes above 127 stay as they are. Functions
// for UTF-8 and JSON strings are in codec/text.h.
//
//   for (std::string_view name : split("a, b", ',')) names.push_back(lower(trim(name)));
//   std::optional<int> port = parse_integer<int>("6443");
#pragma once

#include <charconv>
#include <chrono>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace varda {

constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
std::string lower(std::string_view text);
bool equal_ignoring_case(std::string_view a, std::string_view b);
bool starts_ignoring_case(std::string_view text, std::string_view start);

/// Without the blanks at both ends. Borrows `text`.
std::string_view trim(std::string_view text, std::string_view blanks = " \t\r\n");
/// The parts between separators, also the empty ones: one part more than separators. Borrows
/// `text`.
std::vector<std::string_view> split(std::string_view text, char separator);
/// The texts that `text` makes from the items of a range, with separators between them.
template <typename Range, typename Text>
std::string join(const Range& items, std::string_view separator, Text text) {
  std::string out;
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += separator;
    first = false;
    out += text(item);
  }
  return out;
}
/// The same of a range of texts.
template <typename Range>
std::string join(const Range& texts, std::string_view separator = ", ") {
  return join(
      texts, separator, [](const auto& text) -> const auto& { return text; });
}

/// The whole text as a decimal integer, without blanks and '+'. Nothing: other text, or beyond T.
template <std::integral T>
std::optional<T> parse_integer(std::string_view text) {
  T value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

/// A whole number followed by ms, s, m, h or d. Nothing: other text, or more than nine digits.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

}  // namespace varda
