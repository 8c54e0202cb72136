#include "codec/settings_reader.h"

#include <optional>

#include "base/text.h"

namespace varda::codec {
namespace {

constexpr std::size_t kShownMax = 60;  // bytes of a wrong value in a message
constexpr std::size_t kListMax = 10'000, kNameMax = 1000;
constexpr std::size_t kCorrectedNameMax = 64;  // longer names get no suggestion
constexpr std::size_t kTypingErrorsMax = 2;
constexpr std::size_t kPeriodDigitsMax = 9;
constexpr std::size_t kPeriodLengthMax = 32;

/// Insertions, deletions and replacements between two short names, without case.
std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row[b.size()];
}

std::string shown_value(const Json& value) {
  std::string out = write_json(value);
  if (out.size() > kShownMax) out = "this " + std::string(type_name(value.type()));
  return out;
}

Json without_fraction(double value) {
  const auto whole = static_cast<std::int64_t>(value);
  return static_cast<double>(whole) == value ? Json(whole) : Json(value);
}

/// Nothing: another form, or more than nine digits.
std::optional<std::chrono::seconds> parse_period(std::string_view text) {
  std::chrono::seconds sum{0};
  if (text.empty()) return std::nullopt;
  while (!text.empty()) {
    const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    if (digits == 0 || digits > kPeriodDigitsMax) return std::nullopt;
    std::int64_t number = 0;
    for (const char digit : text.substr(0, digits)) number = 10 * number + (digit - '0');
    text.remove_prefix(digits);
    if (text.empty()) return sum + std::chrono::seconds(number);
    const std::size_t unit = std::string_view("smhd").find(text.front());
    if (unit == std::string_view::npos) return std::nullopt;
    constexpr std::int64_t kSeconds[] = {1, 60, 3600, 86'400};
    sum += std::chrono::seconds(number * kSeconds[unit]);
    text.remove_prefix(1);
  }
  return sum;
}

}  // namespace

std::string alternatives(std::span<const std::string_view> names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) out += i + 1 == names.size() ? " or " : ", ";
    out += names[i];
  }
  return out;
}

std::string_view nearest_name(std::string_view written, std::span<const std::string> names) {
  if (written.size() > kCorrectedNameMax) return "";
  std::string_view best;
  std::size_t least = kTypingErrorsMax + 1;
  for (const std::string& name : names) {
    const std::size_t edits = edits_between(written, name);
    if (edits >= least || 2 * edits >= name.size()) continue;
    least = edits;
    best = name;
  }
  return best;
}

bool Range::contains(double value) const {
  return (ends == Ends::kAboveLow ? value > low : value >= low) &&
         (ends == Ends::kBelowHigh ? value < high : value <= high);
}

std::string Range::text() const {
  const std::string from = write_json(without_fraction(low));
  const std::string to = write_json(without_fraction(high));
  switch (ends) {
    case Ends::kAboveLow:
      return "above " + from + " and at most " + to;
    case Ends::kBelowHigh:
      return "at least " + from + " and below " + to;
    default:
      return "from " + from + " to " + to;
  }
}

SettingsReader::SettingsReader(const Json& json, std::string path, Status& status)
    : json_(json), path_(std::move(path)), status_(status) {
  if (!json.is_null() && !json.is_object())
    fail((path_.empty() ? std::string("the settings") : path_) + " must be an object, not " +
         shown_value(json));
}

void SettingsReader::integer(std::string_view name, std::int64_t& out, std::int64_t low,
                             std::int64_t high) {
  const Json* value = find(name);
  if (value == nullptr) return;
  // Some writers of JSON have no integers; as_integer() takes whole doubles.
  const std::int64_t got = value->as_integer(low - 1);
  if (!value->is_number() || got < low || got > high)
    return refuse(name,
                  "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  out = got;
}

void SettingsReader::number(std::string_view name, double& out, const Range& range) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_number() || !range.contains(value->as_double()))
    return refuse(name, "a number " + range.text());
  out = value->as_double();
}

void SettingsReader::boolean(std::string_view name, bool& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_bool()) return refuse(name, "true or false");
  out = value->as_bool();
}

void SettingsReader::text(std::string_view name, std::string& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_string() || value->as_string().size() > kNameMax)
    return refuse(name, "a text of at most " + std::to_string(kNameMax) + " bytes");
  out = value->as_string();
}

void SettingsReader::texts(std::string_view name, std::vector<std::string>& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  const auto fits = [](const Json& item) {
    return item.is_string() && !item.as_string().empty() && item.as_string().size() <= kNameMax;
  };
  if (!value->is_array() || value->size() > kListMax ||
      !std::all_of(value->as_array().begin(), value->as_array().end(), fits))
    return refuse(name, "a list of at most " + std::to_string(kListMax) + " names");
  for (const Json& item : value->as_array()) out.push_back(item.as_string());
}

void SettingsReader::period(std::string_view name, std::chrono::milliseconds& out,
                            std::chrono::seconds low, std::chrono::seconds high) {
  const Json* value = find(name);
  if (value == nullptr) return;
  std::optional<std::chrono::milliseconds> got;
  if (value->is_string() && value->as_string().size() <= kPeriodLengthMax)
    got = parse_period(value->as_string());
  if (value->is_number() && value->as_double() >= 0 &&
      value->as_double() <= static_cast<double>(high.count()))
    got = std::chrono::milliseconds(static_cast<std::int64_t>(value->as_double() * 1000));
  if (!got || *got < low || *got > high)
    return refuse(name, "a period such as 90s, 10m or 1d12h, from " + std::to_string(low.count()) +
                            " to " + std::to_string(high.count()) + " seconds");
  out = *got;
}

void SettingsReader::refuse(std::string_view name, const std::string& wanted) {
  fail(path(name) + " must be " + wanted + ", not " + shown_value(json_[name]));
}

void SettingsReader::end() {
  for (const auto& [name, value] : json_.as_object()) {
    if (std::find(read_.begin(), read_.end(), name) != read_.end()) continue;
    std::string message = "unknown setting " + path(name) + "; ";
    if (const std::string_view nearest = nearest_name(name, read_); !nearest.empty())
      message += "did you mean " + path(nearest) + "?";
    else
      message += (path_.empty() ? "the settings are " : path_ + " has ") + join(read_);
    return fail(std::move(message));
  }
}

const Json* SettingsReader::find(std::string_view name) {
  read_.emplace_back(name);
  const Json* value = json_.find(name);
  return status_.ok() && value != nullptr && !value->is_null() ? value : nullptr;
}

void SettingsReader::fail(std::string message) {
  if (status_.ok()) status_ = Error(Code::kInvalid, std::move(message));
}

}  // namespace varda::codec
