// HardExampleMining: the policy table of src/tiers as schema rules for names, keys and values.

#include <algorithm>
#include <charconv>
#include <functional>
#include <utility>

#include "api/sedna/describe_worker.h"
#include "base/text.h"
#include "tiers/policy_table.h"

namespace varda::api {

namespace {

using tiers::ParameterKind;
using tiers::ParameterRow;
using tiers::PolicyRow;

// Keeps the UTF-8 of a value within the limit of the policies.
constexpr std::size_t kValueCharactersMax = tiers::kParameterValueBytesMax / 4;

std::vector<std::string> names_of(const PolicyRow& row) {
  std::vector<std::string> names{std::string(row.name)};
  for (const std::string_view alias : row.aliases) names.emplace_back(alias);
  return names;
}

std::vector<std::string> keys_of(const PolicyRow& row) {
  std::vector<std::string> keys;
  for (const ParameterRow& parameter : row.parameters) keys.emplace_back(parameter.key);
  return keys;
}

std::string is_called(const PolicyRow& row) {
  return "self.name in [" + rules::cel_quote(names_of(row)) + "]";
}

std::string parameter_field(std::size_t index, std::string_view member) {
  return ".parameters[" + std::to_string(index) + "]." + std::string(member);
}

/// Checks one parameter. Its policy and key are known.
using ValueCheck = std::function<std::optional<Violation>(
    const ParameterRow& row, const std::string& field, const Json& value)>;

std::function<std::vector<Violation>(const Json&)> for_each_value(ValueCheck check) {
  return [check = std::move(check)](const Json& self) {
    std::vector<Violation> found;
    const PolicyRow* policy = tiers::find_policy(self["name"].as_string());
    if (policy == nullptr) return found;  // another rule refuses it
    std::size_t index = 0;
    for (const Json& parameter : self["parameters"].as_array()) {
      const std::size_t at = index++;
      const ParameterRow* row = tiers::find_parameter(*policy, parameter["key"].as_string());
      if (row == nullptr || !parameter["value"].is_string()) continue;
      if (auto violation = check(*row, parameter_field(at, "value"), parameter["value"]))
        found.push_back(std::move(*violation));
    }
    return found;
  };
}

/// CEL: `condition` holds for every parameter p of the wanted kind and range.
std::string cel_for_each_value(const std::function<bool(const ParameterRow&)>& wanted,
                               const std::string& condition) {
  std::string cases;
  for (const PolicyRow& policy : tiers::policy_table()) {
    std::vector<std::string> keys;
    for (const ParameterRow& row : policy.parameters) {
      if (wanted(row)) keys.emplace_back(row.key);
    }
    if (keys.empty()) continue;
    cases += (cases.empty() ? "(" : " || (") + is_called(policy) + " && p.key in [" +
             rules::cel_quote(keys) + "])";
  }
  return "!has(self.parameters) || self.parameters.all(p, !(" + cases + ") || (" + condition + "))";
}

Rule keys_are_known() {
  Rule rule;
  std::string cases, listed;
  std::vector<std::string> names;
  for (const PolicyRow& policy : tiers::policy_table()) {
    for (const std::string& name : names_of(policy)) names.push_back(name);
    cases += (cases.empty() ? "(" : " || (") + is_called(policy) + " && p.key in [" +
             rules::cel_quote(keys_of(policy)) + "])";
    if (policy.parameters.empty()) continue;
    const std::string keys = join(keys_of(policy));
    listed += (listed.empty() ? "" : "; ") + std::string(policy.name) + ": " + keys;
  }
  // Another rule refuses an unknown policy.
  rule.cel = "!has(self.parameters) || !(self.name in [" + rules::cel_quote(names) +
             "]) || self.parameters.all(p, " + cases + ")";
  rule.message = "must be parameters of the policy (" + listed + ")";
  rule.reason = "FieldValueInvalid";
  rule.field_path = ".parameters";
  rule.check = [](const Json& self) {
    std::vector<Violation> found;
    const PolicyRow* policy = tiers::find_policy(self["name"].as_string());
    std::size_t index = 0;
    for (const Json& parameter : self["parameters"].as_array()) {
      const std::size_t at = index++;
      const Json& key = parameter["key"];
      if (policy == nullptr || !key.is_string() ||
          tiers::find_parameter(*policy, key.as_string()) != nullptr)
        continue;
      if (policy->parameters.empty()) {
        found.push_back({"FieldValueForbidden", parameter_field(at, "key"),
                         "Forbidden: " + std::string(policy->name) + " takes no parameters"});
        continue;
      }
      std::string supported;
      for (const std::string& one : keys_of(*policy))
        supported += (supported.empty() ? "\"" : ", \"") + one + "\"";
      found.push_back(
          {"FieldValueNotSupported", parameter_field(at, "key"),
           "Unsupported value: " + codec::write_json(key) + ": supported values: " + supported});
    }
    return found;
  };
  return rule;
}

std::string number_text(double value, bool cel) {
  char text[32];
  const auto end = std::to_chars(std::begin(text), std::end(text), value).ptr;
  std::string out(text, end);
  if (cel && out.find_first_of(".e") == std::string::npos) out += ".0";  // CEL needs a double
  return out;
}

Rule numbers_are_numbers(double min, double max) {
  const auto wanted = [min, max](const ParameterRow& row) {
    return row.kind == ParameterKind::kNumber && row.min == min && row.max == max;
  };
  Rule rule;
  rule.cel =
      cel_for_each_value(wanted, "p.value.matches(" + rules::cel_quote(tiers::kNumberPattern) +
                                     ") && double(p.value) >= " + number_text(min, true) +
                                     " && double(p.value) <= " + number_text(max, true));
  const std::string what = "must be a number from " + number_text(min, false) + " to " +
                           number_text(max, false) + ", as text";
  std::string keys;
  for (const PolicyRow& policy : tiers::policy_table()) {
    for (const ParameterRow& row : policy.parameters) {
      if (wanted(row)) keys += (keys.empty() ? "" : ", ") + std::string(row.key);
    }
  }
  rule.message = "the value of " + keys + " " + what;
  rule.reason = "FieldValueInvalid";
  rule.field_path = ".parameters";
  rule.check =
      for_each_value([=](const ParameterRow& row, const std::string& field, const Json& value) {
        const bool wrong = wanted(row) && !tiers::parse_number(value.as_string(), min, max).ok();
        return wrong ? std::optional(rules::invalid(field, value, what)) : std::nullopt;
      });
  return rule;
}

Rule texts_are_not_empty() {
  const auto wanted = [](const ParameterRow& row) { return row.kind == ParameterKind::kText; };
  Rule rule;
  rule.cel = cel_for_each_value(wanted, "p.value != ''");
  rule.message = "the value of a text must not be empty";
  rule.reason = "FieldValueInvalid";
  rule.field_path = ".parameters";
  rule.check =
      for_each_value([=](const ParameterRow& row, const std::string& field, const Json& value) {
        const bool wrong = wanted(row) && value.as_string().empty();
        return wrong ? std::optional(rules::invalid(field, value, "must not be empty"))
                     : std::nullopt;
      });
  return rule;
}

// A list of texts is "a, b" without blank texts. If a text has a comma, the list is JSON: ["a, b",
// "c"]. These patterns and is_text_list() agree. Invalid escapes, and escapes that make a text
// blank, pass here; the constructor of the policy refuses them.
constexpr std::string_view kPlainList =
    R"(^[ \t\r\n]*[^, \t\r\n\[][^,]*(,[ \t\r\n]*[^, \t\r\n][^,]*)*$)";
constexpr std::string_view kJsonText =
    R"("[ \t]*([^" \t\\\x00-\x1f]|\\["\\/bfnrtu])([^"\\\x00-\x1f]|\\["\\/bfnrtu])*")";

std::string json_list_pattern() {
  const std::string text(kJsonText), space = R"([ \t\r\n]*)";
  return "^" + space + R"(\[)" + space + text + space + "(," + space + text + space + R"()*\])" +
         space + "$";
}

/// Reads a text piece by piece. std::regex would recurse once per character.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}
  bool at_end() const { return text_.empty(); }
  void skip(std::string_view any_of) {
    text_.remove_prefix(std::min(text_.find_first_not_of(any_of), text_.size()));
  }
  bool take(char c) {
    if (!text_.starts_with(c)) return false;
    text_.remove_prefix(1);
    return true;
  }
  /// Takes one character or one escape of a JSON string.
  bool take_character() {
    if (at_end() || text_.front() == '"' || static_cast<unsigned char>(text_.front()) < 0x20)
      return false;
    const bool escape = take('\\');
    if (escape && (at_end() ||
                   std::string_view(R"("\/bfnrtu)").find(text_.front()) == std::string_view::npos))
      return false;
    text_.remove_prefix(1);
    return true;
  }
  bool take_json_text() {
    if (!take('"')) return false;
    skip(" \t");
    if (!take_character()) return false;
    while (take_character()) {
    }
    return take('"');
  }

 private:
  std::string_view text_;
};

constexpr std::string_view kSpace = " \t\r\n";

bool is_json_list(std::string_view value) {
  Scanner scanner(value);
  scanner.skip(kSpace);
  if (!scanner.take('[')) return false;
  do {
    scanner.skip(kSpace);
    if (!scanner.take_json_text()) return false;
    scanner.skip(kSpace);
  } while (scanner.take(','));
  if (!scanner.take(']')) return false;
  scanner.skip(kSpace);
  return scanner.at_end();
}

bool is_text_list(std::string_view value) {
  const std::size_t first = value.find_first_not_of(kSpace);
  if (first != std::string_view::npos && value[first] == '[') return is_json_list(value);
  for (std::size_t at = 0; at <= value.size();) {
    const std::size_t comma = std::min(value.find(',', at), value.size());
    if (value.substr(at, comma - at).find_first_not_of(kSpace) == std::string_view::npos)
      return false;
    at = comma + 1;
  }
  return true;
}

Rule lists_are_lists() {
  const auto wanted = [](const ParameterRow& row) { return row.kind == ParameterKind::kTextList; };
  Rule rule;
  rule.cel = cel_for_each_value(wanted, "p.value.matches(" + rules::cel_quote(kPlainList) +
                                            ") || p.value.matches(" +
                                            rules::cel_quote(json_list_pattern()) + ")");
  static constexpr std::string_view kWhat =
      "must be texts with commas between them (a, b), or a JSON list of texts where one has a "
      "comma; none of them empty";
  rule.message = "a list " + std::string(kWhat);
  rule.reason = "FieldValueInvalid";
  rule.field_path = ".parameters";
  rule.check =
      for_each_value([=](const ParameterRow& row, const std::string& field, const Json& value) {
        const bool wrong = wanted(row) && !is_text_list(value.as_string());
        return wrong ? std::optional(rules::invalid(field, value, kWhat)) : std::nullopt;
      });
  return rule;
}

std::vector<Rule> required_parameters() {
  std::vector<Rule> all;
  for (const PolicyRow& policy : tiers::policy_table()) {
    for (const ParameterRow& row : policy.parameters) {
      if (!row.required) continue;
      const std::string key(row.key);
      Rule rule;
      rule.cel = "!(" + is_called(policy) +
                 ") || (has(self.parameters) && self.parameters.exists(p, p.key == " +
                 rules::cel_quote(row.key) + "))";
      rule.message = std::string(policy.name) + " needs the parameter " + key;
      rule.reason = "FieldValueRequired";
      rule.field_path = ".parameters";
      rule.check = [&policy, key,
                    message = rule.message](const Json& self) -> std::vector<Violation> {
        if (tiers::find_policy(self["name"].as_string()) != &policy) return {};
        for (const Json& parameter : self["parameters"].as_array()) {
          if (parameter["key"].as_string() == key) return {};
        }
        return {{"FieldValueRequired", ".parameters", "Required value: " + message}};
      };
      all.push_back(std::move(rule));
    }
  }
  return all;
}

std::vector<std::string> known_names() {
  std::vector<std::string> all;
  for (const PolicyRow& policy : tiers::policy_table()) {
    for (std::string& name : names_of(policy)) all.push_back(std::move(name));
  }
  return all;
}

/// The rules of our server for policies, except the rule for the name.
std::vector<Rule> policy_rules() {
  std::vector<Rule> all{keys_are_known()};
  std::vector<std::pair<double, double>> ranges;
  for (const PolicyRow& policy : tiers::policy_table()) {
    for (const ParameterRow& row : policy.parameters) {
      if (row.kind == ParameterKind::kNumber) ranges.emplace_back(row.min, row.max);
    }
  }
  std::sort(ranges.begin(), ranges.end());
  ranges.erase(std::unique(ranges.begin(), ranges.end()), ranges.end());
  for (const auto& [min, max] : ranges) all.push_back(numbers_are_numbers(min, max));
  all.push_back(texts_are_not_empty());
  all.push_back(lists_are_lists());
  for (Rule& rule : required_parameters()) all.push_back(std::move(rule));
  return all;
}

Rule name_is_known() {
  Rule rule;
  const std::string known = join(known_names());
  rule.cel = "self.name in [" + rules::cel_quote(known_names()) + "]";
  rule.message = "varda-serve supports the policies " + known +
                 "; a custom policy needs a workerSpec or template";
  rule.reason = "FieldValueInvalid";
  rule.field_path = ".name";
  rule.check = [](const Json& self) -> std::vector<Violation> {
    const Json& name = self["name"];
    if (!name.is_string() || tiers::find_policy(name.as_string()) != nullptr) return {};
    std::string supported;
    for (const std::string& one : known_names())
      supported += (supported.empty() ? "\"" : ", \"") + one + "\"";
    return {{"FieldValueNotSupported", ".name",
             "Unsupported value: " + codec::write_json(name) + ": supported values: " + supported +
                 "; with a workerSpec or template: any name"}};
  };
  return rule;
}

/// Moves a rule of the struct `member` to the enclosing struct.
Rule within(const std::string& member, Rule rule) {
  constexpr std::string_view kSelf = "self.";
  std::string cel;
  for (std::size_t at = 0; at < rule.cel.size();) {
    const std::size_t found = std::min(rule.cel.find(kSelf, at), rule.cel.size());
    cel.append(rule.cel, at, found - at);
    if (found < rule.cel.size()) cel += std::string(kSelf) + member + ".";
    at = found + kSelf.size();
  }
  rule.cel = "!has(self." + member + ") || (" + cel + ")";
  rule.field_path = "." + member + rule.field_path;
  rule.check = [member, check = std::move(rule.check)](const Json& self) {
    const Json& value = self[member];
    std::vector<Violation> found = value.is_object() ? check(value) : std::vector<Violation>{};
    for (Violation& one : found) one.field = "." + member + one.field;
    return found;
  };
  return rule;
}

/// "Threshold: hard if ... (threshold 0.5); ...", the user's documentation in `kubectl explain`.
std::string formulas() {
  std::string out;
  for (const PolicyRow& policy : tiers::policy_table()) {
    out += (out.empty() ? "" : "; ") + std::string(policy.name);
    for (const std::string_view alias : policy.aliases) out += " or " + std::string(alias);
    out += ": " + std::string(policy.formula);
    std::string defaults;
    for (const ParameterRow& row : policy.parameters) {
      if (row.initial)
        defaults +=
            (defaults.empty() ? "" : ", ") + std::string(row.key) + " " + std::string(*row.initial);
    }
    if (!defaults.empty()) out += " (default " + defaults + ")";
  }
  return out;
}

}  // namespace

std::vector<tiers::PolicyParameter> HardExampleMining::policy_parameters() const {
  std::vector<tiers::PolicyParameter> out;
  for (const MiningParameter& parameter : parameters)
    out.push_back({parameter.key, parameter.value});
  return out;
}

Json HardExampleMining::parameters_to_json() const {
  Json out = Json::array();
  for (const MiningParameter& parameter : parameters)
    out.push_back(Json::object({{"key", parameter.key}, {"value", parameter.value}}));
  return out;
}

void MiningParameter::describe(Type<MiningParameter>& t) {
  t.doc("One parameter of the policy.");
  t.field("key", &MiningParameter::key, "Name of the parameter.")
      .required()
      .length(1, tiers::kParameterKeyBytesMax);
  t.field("value", &MiningParameter::value, "Value as text. Put numbers in quotes.")
      .required()
      .length(0, kValueCharactersMax);
  t.keep_unknown(&MiningParameter::unknown);
}

void HardExampleMining::describe(Type<HardExampleMining>& t) {
  t.doc("Policy that decides which answers are hard, so that the next tier is called.");
  t.field("name", &HardExampleMining::name,
          "Name of the policy. A worker with a workerSpec or template may use its own policies. " +
              formulas() + ".")
      .required()
      .length(1, tiers::kPolicyNameBytesMax);
  t.field("parameters", &HardExampleMining::parameters,
          "Parameters of the policy. Missing parameters have their defaults.")
      .items_max(tiers::kPolicyParametersMax)
      .list_map({"key"});
  t.keep_unknown(&HardExampleMining::unknown);
}

void TierPolicy::describe(Type<TierPolicy>& t) {
  t.doc("Policy that decides which answers are hard, so that the next tier is called.");
  t.field<std::string>("name", &HardExampleMining::name, "Name of the policy. " + formulas() + ".")
      .required()
      .one_of(known_names());
  t.field<std::vector<MiningParameter>>(
       "parameters", &HardExampleMining::parameters,
       "Parameters of the policy. Missing parameters have their defaults.")
      .items_max(tiers::kPolicyParametersMax)
      .list_map({"key"});
  t.keep_unknown(&HardExampleMining::unknown);
  for (Rule& rule : policy_rules()) t.rule(std::move(rule));
}

namespace detail {

std::vector<Rule> edge_policy_rules() {
  std::vector<Rule> all = policy_rules();
  all.insert(all.begin(), name_is_known());
  for (Rule& rule : all) {
    rule = rules::unless_any_set(
        {{"workerSpec", rules::Shape::kObject}, {"template", rules::Shape::kObject}},
        within("hardExampleMining", std::move(rule)));
  }
  return all;
}

}  // namespace detail

}  // namespace varda::api
