#include "dataset/header.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

#include "base/text.h"

namespace varda::dataset {
namespace {

constexpr std::size_t kNameBytesMax = 64;

bool is_number(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && end == text.data() + text.size() && error != std::errc::invalid_argument;
}

bool is_name(std::string_view field) {
  if (field.find_first_not_of(" \t") == std::string_view::npos || field.size() > kNameBytesMax)
    return false;
  const bool odd = std::any_of(field.begin(), field.end(),
                               [](char c) { return (c >= 0 && c < ' ') || c == '/' || c == '\\'; });
  if (odd || is_number(field)) return false;
  const std::string text = lower(field);
  return text != "true" && text != "false" && text != "null" && text != "nan";
}

}  // namespace

bool names_columns(std::span<const std::string> fields) {
  std::set<std::string_view> seen;
  return std::all_of(fields.begin(), fields.end(), [&](const std::string& field) {
    return is_name(field) && seen.insert(field).second;
  });
}

}  // namespace varda::dataset
