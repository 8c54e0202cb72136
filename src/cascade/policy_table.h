// The policies of hard examples as data: what they are called, what they take, what of a model's answer they read.
//
// The table is what schema and rules of the kinds, the reference, cascade.json and the policies themselves are made from. Names,
// keys, defaults and formulas of Threshold, CrossEntropy, IBT, Random, CloudOnly and EdgeOnly are those of Sedna
// (lib/sedna/algorithms/hard_example_mining); what differs on edge values stands in the room's README.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace varda::cascade {

enum class ParameterKind : std::uint8_t {
  kNumber,    // decimal, in [min, max]: kNumberPattern
  kText,      // not empty
  kTextList,  // "a, b", or a JSON list of strings for items with commas; not empty
};

/// What a policy reads of the first tier's answer.
enum class PolicyInput : std::uint8_t {
  kNothing,             // decides before inference
  kClassProbabilities,  // one number a class, in [0, 1]
  kBoxScores,           // one number a box, in [0, 1]
  kTopLabel,            // the name of the best class or box
};

struct ParameterRow {
  std::string_view key;
  ParameterKind kind;
  std::optional<std::string_view> initial;  // the default as a user would write it; absent: the parameter may stay away without one
  bool required = false;
  double min = 0;  // of kNumber
  double max = 1;
  std::string_view what;  // a sentence for the reference
};

struct PolicyRow {
  std::string_view name;                      // canonical
  std::span<const std::string_view> aliases;  // as good as the name
  PolicyInput input;
  std::span<const ParameterRow> parameters;
  std::string_view formula;  // "hard if …", for the reference
  std::string_view source;   // whose definition it is
};

/// As a user writes it: key and value are texts.
struct PolicyParameter {
  std::string key;
  std::string value;
  friend bool operator==(const PolicyParameter&, const PolicyParameter&) = default;
};

inline constexpr std::size_t kPolicyParametersMax = 8;
inline constexpr std::size_t kPolicyNameBytesMax = 63;
inline constexpr std::size_t kParameterKeyBytesMax = 63;
inline constexpr std::size_t kParameterValueBytesMax = 4096;
inline constexpr std::size_t kTextListItemsMax = 1024;
/// Exactly the numbers that are taken, before their range is looked at (RE2 and ECMAScript read it alike). No sign, no spaces, no
/// NaN: every range begins at 0 or above. All of them are within a double's range.
inline constexpr std::string_view kNumberPattern = R"(^([0-9]{1,20}([.][0-9]{0,20})?|[.][0-9]{1,20})([eE][-+]?[0-9]{1,2})?$)";

/// In the order of the reference. Lives as long as the process.
std::span<const PolicyRow> policy_table();
/// By name or alias, exactly as written; null for none.
const PolicyRow* find_policy(std::string_view name);
/// The row's parameter, or null.
const ParameterRow* find_parameter(const PolicyRow& row, std::string_view key);

struct PolicyFault {
  std::string where;                 // "name", "parameters", "parameters[1].key", "parameters[1].value"
  std::optional<std::size_t> index;  // of the parameter it is about
  std::string what;                  // "must be a number from 0 to 1, not '1.5'"
};

/// Everything that is wrong, in the order of the input; empty if a policy can be made of it.
std::vector<PolicyFault> check_policy(std::string_view name, std::span<const PolicyParameter> parameters);

/// A number as kNumberPattern has it, in [min, max]. kInvalid: the message is a PolicyFault's `what`.
Result<double> parse_number(std::string_view text, double min, double max);
/// The items, without the spaces around them. kInvalid: as above.
Result<std::vector<std::string>> parse_text_list(std::string_view text);

}  // namespace varda::cascade
