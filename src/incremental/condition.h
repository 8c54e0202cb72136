// Conditions on metrics, as a trigger or a gate has them: {metric, operator, threshold}.
//
//   Condition condition = parse_condition(json, "trigger.condition").value();
//   ConditionResult result = check(condition, metrics);   // result.reason explains both results
//
// A metric is a member of an object of metrics. `accuracy[0]` and `accuracy.0` select the first
// item of a list. A member with exactly that name has precedence.
//
// | value of the metric                      | number            |
// |------------------------------------------|-------------------|
// | a finite number, or the text of one      | that number       |
// | a list with one item                     | that of the item  |
// | missing, null, NaN, an infinity          | none              |
// | a list with other sizes, without index   | none              |
// | a boolean, an object, another text       | none              |
//
// A condition without a number never holds, also with the operator !=.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/json.h"

namespace varda::incremental {

enum class Operator : std::uint8_t {
  kGreater,
  kGreaterOrEqual,
  kEqual,
  kNotEqual,
  kLessOrEqual,
  kLess,
};
/// Both spellings: "gt" and ">", "ge" and ">=", … Nothing: another text.
std::optional<Operator> parse_operator(std::string_view text);
/// ">=".
std::string_view symbol(Operator op);
/// The spellings that parse_operator() accepts, for schemas.
inline constexpr std::string_view kOperatorNames[] = {
    "gt", ">", "ge", ">=", "eq", "==", "ne", "!=", "le", "<=", "lt", "<"};

inline constexpr std::size_t kMetricNameBytesMax = 253;

struct Condition {
  std::string metric;
  Operator op = Operator::kGreater;
  double threshold = 0;  // finite

  friend bool operator==(const Condition&, const Condition&) = default;
};

/// `path` leads to the condition in messages. kInvalid: the message names the member.
Result<Condition> parse_condition(const codec::Json& json, const std::string& path);
codec::Json to_json(const Condition& condition);

struct MetricValue {
  std::optional<double> number;
  std::string problem;  // why there is no number: "accuracy is missing"
};
MetricValue read_metric(const codec::Json& metrics, std::string_view name);

struct ConditionResult {
  bool holds = false;
  std::optional<double> number;
  std::string reason;  // "num_of_samples is 61, and the condition is >= 60"
};
ConditionResult check(const Condition& condition, const codec::Json& metrics);

/// The value as people write it: 0.1 instead of 0.10000000000000001; four digits below 1,000, six above.
std::string number_text(double value);

}  // namespace varda::incremental
