// The hard-example policies as data: names, parameters, and the outputs that they read.
//
// The table generates the schema and rules of the API kinds, the reference and the checks of
// joint.json. Names, keys, defaults and formulas of Threshold, CrossEntropy, IBT, Random,
// CloudOnly and EdgeOnly are Sedna's (lib/sedna/algorithms/hard_example_mining). The room's README
// lists the differences on edge values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace varda::tiers {

enum class ParameterKind : std::uint8_t {
  kNumber,    // decimal, in [min, max]: kNumberPattern
  kText,      // not empty
  kTextList,  // "a, b", or a JSON list of strings for items with commas; not empty
};

/// The part of the first tier's answer that a policy reads.
enum class PolicyInput : std::uint8_t {
  kNothing,             // decides before inference
  kClassProbabilities,  // one number per class, in [0, 1]
  kBoxScores,           // one number per box, in [0, 1]
  kTopLabel,            // name of the best class or box
  kClassLogits,         // one number per class, before softmax
};

struct ParameterRow {
  std::string_view key;
  ParameterKind kind;
  std::optional<std::string_view> initial;  // default, as a user writes it; absent: none
  bool required = false;
  double min = 0;  // for kNumber
  double max = 1;
  std::string_view what;  // a sentence for the reference
};

struct PolicyRow {
  std::string_view name;                      // canonical
  std::span<const std::string_view> aliases;  // equivalent names
  PolicyInput input;
  std::span<const ParameterRow> parameters;
  std::string_view formula;  // "hard if …", for the reference
  std::string_view source;   // origin of the definition
};

/// As a user writes it: key and value are text.
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
/// The accepted number syntax, before the range check (RE2 and ECMAScript agree). No sign, no
/// spaces, no NaN, since every range starts at 0 or above. All matches fit a double.
inline constexpr std::string_view kNumberPattern =
    R"(^([0-9]{1,20}([.][0-9]{0,20})?|[.][0-9]{1,20})([eE][-+]?[0-9]{1,2})?$)";

/// In the order of the reference. Static lifetime.
std::span<const PolicyRow> policy_table();
/// Finds by name or alias, case-sensitive; null if unknown.
const PolicyRow* find_policy(std::string_view name);
/// The row's parameter, or null.
const ParameterRow* find_parameter(const PolicyRow& row, std::string_view key);

struct PolicyFault {
  std::string where;  // "name", "parameters", "parameters[1].key", "parameters[1].value"
  std::optional<std::size_t> index;  // the parameter's index, if the fault concerns one
  std::string what;                  // "must be a number from 0 to 1, not '1.5'"
};

/// All faults, in the order of the input; empty if the policy can be constructed.
std::vector<PolicyFault> check_policy(std::string_view name,
                                      std::span<const PolicyParameter> parameters);

/// Parses kNumberPattern in [min, max]. kInvalid: the message is a PolicyFault's `what`.
Result<double> parse_number(std::string_view text, double min, double max);
/// The items, trimmed. kInvalid: as above.
Result<std::vector<std::string>> parse_text_list(std::string_view text);

}  // namespace varda::tiers
