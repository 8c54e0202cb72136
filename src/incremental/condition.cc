#include "incremental/condition.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/text.h"
#include "codec/settings_reader.h"
#include "codec/text.h"
#include "incremental/internal/read.h"

namespace varda::incremental {
namespace {

using codec::Json;

struct Spelling {
  std::string_view word, sign;
  Operator op;
};
constexpr Spelling kSpellings[] = {
    {"gt", ">", Operator::kGreater},      {"ge", ">=", Operator::kGreaterOrEqual},
    {"eq", "==", Operator::kEqual},       {"ne", "!=", Operator::kNotEqual},
    {"le", "<=", Operator::kLessOrEqual}, {"lt", "<", Operator::kLess}};

bool compares(double value, Operator op, double threshold) {
  switch (op) {
    case Operator::kGreater:
      return value > threshold;
    case Operator::kGreaterOrEqual:
      return value >= threshold;
    case Operator::kEqual:
      return value == threshold;
    case Operator::kNotEqual:
      return value != threshold;
    case Operator::kLessOrEqual:
      return value <= threshold;
    case Operator::kLess:
      return value < threshold;
  }
  return false;
}

/// A metric's name and the index at the end: "accuracy[0]" or "accuracy.0".
struct Indexed {
  std::string_view name;
  std::size_t index = 0;
};
std::optional<Indexed> split_index(std::string_view text) {
  std::string_view digits;
  std::string_view name;
  if (text.ends_with(']')) {
    const std::size_t open = text.rfind('[');
    if (open == std::string_view::npos) return std::nullopt;
    name = text.substr(0, open);
    digits = text.substr(open + 1, text.size() - open - 2);
  } else {
    const std::size_t dot = text.rfind('.');
    if (dot == std::string_view::npos) return std::nullopt;
    name = text.substr(0, dot);
    digits = text.substr(dot + 1);
  }
  if (name.empty() || digits.empty() || digits.size() > 9 ||
      digits.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  return Indexed{name, *parse_integer<std::size_t>(digits)};
}

MetricValue no_number(std::string_view name, std::string_view problem) {
  return {std::nullopt, codec::clipped(name, kMetricNameBytesMax) + " " + std::string(problem)};
}

MetricValue number_of(const Json& value, std::string_view name) {
  switch (value.type()) {
    case Json::Type::kInteger:
    case Json::Type::kNumber: {
      const double number = value.as_double();
      if (!std::isfinite(number)) return no_number(name, "is not finite");
      return {number, ""};
    }
    case Json::Type::kString: {
      const auto number = parse_finite(trim(value.as_string()));
      if (!number) return no_number(name, "is a text, not a number");
      return {number, ""};
    }
    case Json::Type::kArray:
      if (value.empty()) return no_number(name, "is an empty list");
      if (value.size() == 1 && !value.as_array().front().is_array())
        return number_of(value.as_array().front(), name);
      return no_number(name, "is a list of " + std::to_string(value.size()) + ": " +
                                 codec::clipped(name, kMetricNameBytesMax) +
                                 "[0] selects the first item");
    case Json::Type::kNull:
      return no_number(name, "is null");
    case Json::Type::kBool:
      return no_number(name, "is a boolean, not a number");
    case Json::Type::kObject:
      return no_number(name, "is an object, not a number");
  }
  return no_number(name, "is not a number");
}

}  // namespace

std::optional<double> parse_finite(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  // from_chars also reads "inf" and "nan".
  if (text.empty() || text.find_first_not_of("0123456789.eE+-") != std::string_view::npos)
    return std::nullopt;
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

void read_optional(codec::SettingsReader& in, std::string_view name, std::optional<double>& out,
                   const codec::Range& range) {
  double value = std::nan("");
  in.number(name, value, range);
  if (!std::isnan(value)) out = value;
}

std::string number_text(double value) {
  if (!std::isfinite(value)) return "no number";
  if (value == 0) return "0";  // also for -0
  std::array<char, 40> text{};
  const double size = std::fabs(value);
  const bool whole = value == std::trunc(value) && size < 1e15;
  std::snprintf(text.data(), text.size(), whole ? "%.0f" : size < 1000 ? "%.4g" : "%.6g", value);
  return text.data();
}

std::optional<Operator> parse_operator(std::string_view text) {
  for (const Spelling& spelling : kSpellings)
    if (text == spelling.word || text == spelling.sign) return spelling.op;
  return std::nullopt;
}

std::string_view symbol(Operator op) {
  return std::find_if(std::begin(kSpellings), std::end(kSpellings),
                      [&](const Spelling& spelling) { return spelling.op == op; })
      ->sign;
}

Result<Condition> parse_condition(const Json& json, const std::string& path) {
  Condition out;
  Status status;
  codec::SettingsReader in(json, path, status);
  in.text("metric", out.metric);
  if (out.metric.size() > kMetricNameBytesMax)
    in.refuse("metric", "at most " + std::to_string(kMetricNameBytesMax) + " bytes long");
  if (const Json* op = in.object("operator")) {
    const auto parsed = op->is_string() ? parse_operator(op->as_string()) : std::nullopt;
    if (parsed)
      out.op = *parsed;
    else
      in.refuse("operator", codec::alternatives(kOperatorNames));
  }
  if (const Json* threshold = in.object("threshold")) {
    std::optional<double> number;
    if (threshold->is_string()) number = parse_finite(trim(threshold->as_string()));
    if (threshold->is_number() && std::isfinite(threshold->as_double()))
      number = threshold->as_double();
    if (number)
      out.threshold = *number;
    else
      in.refuse("threshold", "a number, or the text of a number");
  }
  in.end();
  TRY_VOID(std::move(status));
  for (const std::string_view name : {"metric", "operator", "threshold"})
    if (json[name].is_null())
      return Error(Code::kInvalid, path + " needs the member " + std::string(name));
  if (out.metric.empty()) return Error(Code::kInvalid, path + ".metric must not be empty");
  return out;
}

Json to_json(const Condition& condition) {
  return Json::object({{"metric", condition.metric},
                       {"operator", symbol(condition.op)},
                       {"threshold", condition.threshold}});
}

MetricValue read_metric(const Json& metrics, std::string_view name) {
  if (const Json* exact = metrics.find(name)) return number_of(*exact, name);
  const auto indexed = split_index(name);
  if (!indexed) return no_number(name, "is missing");
  const Json* list = metrics.find(indexed->name);
  if (list == nullptr) return no_number(indexed->name, "is missing");
  if (!list->is_array()) return no_number(indexed->name, "is not a list");
  if (indexed->index >= list->size())
    return no_number(name, "is beyond the list's " + std::to_string(list->size()) + " items");
  return number_of(list->as_array()[indexed->index], name);
}

ConditionResult check(const Condition& condition, const Json& metrics) {
  const MetricValue value = read_metric(metrics, condition.metric);
  ConditionResult out;
  out.number = value.number;
  if (!value.number) {
    out.reason = value.problem;
    return out;
  }
  out.holds = compares(*value.number, condition.op, condition.threshold);
  out.reason = condition.metric + " is " + number_text(*value.number) + ", and the condition is " +
               std::string(symbol(condition.op)) + " " + number_text(condition.threshold);
  return out;
}

}  // namespace varda::incremental
