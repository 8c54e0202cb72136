#include "api/rule.h"

#include <algorithm>
#include <regex>
#include <set>

namespace varda::api::rules {

namespace {

// The same question as cel_is_set asks: there, and not empty.
bool is_set(const Json& self, std::string_view member) {
  const Json* found = self.find(member);
  if (found == nullptr || found->is_null()) return false;
  if (found->is_string()) return !found->as_string().empty();
  if (found->is_array() || found->is_object()) return !found->empty();
  return true;
}

std::string cel_self(std::string_view member) { return "self." + std::string(member); }

std::string cel_is_set(const Member& member) {
  const std::string name = cel_self(member.name);
  switch (member.shape) {
    case Shape::kText:
      return "has(" + name + ") && " + name + " != ''";
    case Shape::kList:
      return "has(" + name + ") && size(" + name + ") > 0";
    case Shape::kNumber:
      return "has(" + name + ")";
  }
  return "true";
}

std::string cel_quote(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string quote(const Json& value) { return codec::write_json(value); }

Violation invalid(std::string field, const Json& value, std::string_view what) {
  return {"FieldValueInvalid", std::move(field), "Invalid value: " + quote(value) + ": " + std::string(what)};
}

std::string item_field(std::string_view list, std::size_t index, std::string_view key) {
  return "." + std::string(list) + "[" + std::to_string(index) + "]." + std::string(key);
}

// Lists may be absent; every list rule holds then.
std::string cel_for_list(std::string_view list, std::string_view condition) {
  return "!has(self." + std::string(list) + ") || " + std::string(condition);
}

}  // namespace

Rule unless_set(std::string_view member, Rule rule) {
  rule.cel = "(" + cel_is_set({std::string(member)}) + ") || (" + rule.cel + ")";
  rule.check = [member = std::string(member), check = std::move(rule.check)](const Json& self) {
    return is_set(self, member) ? std::vector<Violation>{} : check(self);
  };
  return rule;
}

Rule required(Member member, std::string_view why) {
  Rule rule;
  rule.cel = cel_is_set(member);
  rule.message = std::string(why);
  rule.reason = "FieldValueRequired";
  rule.field_path = "." + member.name;
  rule.check = [member, message = rule.message](const Json& self) -> std::vector<Violation> {
    if (is_set(self, member.name)) return {};
    return {{"FieldValueRequired", "." + member.name, "Required value: " + message}};
  };
  return rule;
}

Rule matches(std::string_view member, std::string_view pattern, std::string_view what) {
  Rule rule;
  const std::string text(member);
  rule.cel = "!has(self." + text + ") || self." + text + ".matches(" + cel_quote(pattern) + ")";
  rule.message = std::string(what);
  rule.reason = "FieldValueInvalid";
  rule.field_path = "." + text;
  rule.check = [=, what = rule.message, matcher = std::regex(std::string(pattern))](const Json& self) -> std::vector<Violation> {
    const Json& value = self[text];
    if (!value.is_string()) return {};  // the schema says so
    const std::string& found = value.as_string();
    if (found.size() <= 4096 && std::regex_search(found, matcher)) return {};  // the matcher is recursive
    return {invalid("." + text, value, what)};
  };
  return rule;
}

Rule any_required_when(std::vector<Member> members, std::string_view when, std::string_view value, std::string_view why) {
  Rule rule;
  rule.cel = "self." + std::string(when) + " != " + cel_quote(value);
  for (const Member& member : members) rule.cel += " || (" + cel_is_set(member) + ")";
  rule.message = std::string(why);
  rule.reason = "FieldValueRequired";
  rule.field_path = "." + members.front().name;
  rule.check = [members, when = std::string(when), value = std::string(value),
                why = std::string(why)](const Json& self) -> std::vector<Violation> {
    if (self[when].as_string() != value) return {};
    if (std::any_of(members.begin(), members.end(), [&](const Member& member) { return is_set(self, member.name); })) return {};
    return {{"FieldValueRequired", "." + members.front().name, "Required value: " + why}};
  };
  return rule;
}

Rule listed(std::string_view member, std::string_view list, std::string_view key) {
  Rule rule;
  const std::string text(member), items(list), name(key);
  rule.cel = "!has(self." + text + ") || self." + text + " == '' || (has(self." + items + ") && self." + items +
             ".exists(i, has(i." + name + ") && i." + name + " == self." + text + "))";
  rule.message = "must be the " + name + " of an entry of " + items;
  rule.reason = "FieldValueInvalid";
  rule.field_path = "." + text;
  rule.check = [=, message = rule.message](const Json& self) -> std::vector<Violation> {
    if (!is_set(self, text)) return {};
    std::string known;
    for (const Json& item : self[items].as_array()) {
      if (item[name] == self[text]) return {};
      if (item[name].is_string()) known += (known.empty() ? "" : ", ") + quote(item[name]);
    }
    return {invalid("." + text, self[text], message + (known.empty() ? ", which is empty" : ": " + known))};
  };
  return rule;
}

Rule each_matches(std::string_view list, std::string_view key, std::string_view pattern, std::string_view what) {
  Rule rule;
  const std::string items(list), name(key);
  rule.cel =
      cel_for_list(list, "self." + items + ".all(i, has(i." + name + ") && i." + name + ".matches(" + cel_quote(pattern) + "))");
  rule.message = name + " of every entry " + std::string(what);
  rule.reason = "FieldValueInvalid";
  rule.field_path = "." + items;
  rule.check = [=, what = std::string(what), matcher = std::regex(std::string(pattern))](const Json& self) {
    std::vector<Violation> found;
    std::size_t index = 0;
    for (const Json& item : self[items].as_array()) {
      const std::string field = item_field(items, index++, name);
      const Json& value = item[name];
      if (!item.is_object() || (!value.is_null() && !value.is_string())) continue;  // the schema says so
      if (!is_set(item, name)) {
        found.push_back({"FieldValueRequired", field, "Required value: " + what});
      } else if (value.as_string().size() > 4096 || !std::regex_search(value.as_string(), matcher)) {  // the matcher is recursive
        found.push_back(invalid(field, value, what));
      }
    }
    return found;
  };
  return rule;
}

Rule each_unique(std::string_view list, std::string_view key) {
  Rule rule;
  const std::string items(list), name(key);
  rule.cel = cel_for_list(list, "self." + items + ".all(i, !has(i." + name + ") || self." + items + ".exists_one(j, has(j." + name +
                                    ") && j." + name + " == i." + name + "))");
  rule.message = name + " must be unique";
  rule.reason = "FieldValueDuplicate";
  rule.field_path = "." + items;
  rule.check = [=](const Json& self) {
    std::vector<Violation> found;
    std::set<std::string> seen;
    std::size_t index = 0;
    for (const Json& item : self[items].as_array()) {
      const std::string field = item_field(items, index++, name);
      if (item[name].is_string() && !seen.insert(item[name].as_string()).second) {
        found.push_back({"FieldValueDuplicate", field, "Duplicate value: " + quote(item[name])});
      }
    }
    return found;
  };
  return rule;
}

Rule each_differs(std::string_view list, std::string_view key, std::vector<std::string> values) {
  Rule rule;
  const std::string items(list), name(key);
  std::string cel_values, shown;
  for (const std::string& value : values) {
    cel_values += (cel_values.empty() ? "" : ", ") + cel_quote(value);
    shown += (shown.empty() ? "" : " or ") + quote(Json(value));
  }
  rule.cel = cel_for_list(list, "self." + items + ".all(i, !has(i." + name + ") || !(i." + name + " in [" + cel_values + "]))");
  rule.message = name + " must not be " + shown;
  rule.reason = "FieldValueInvalid";
  rule.field_path = "." + items;
  rule.check = [=](const Json& self) {
    std::vector<Violation> found;
    std::size_t index = 0;
    for (const Json& item : self[items].as_array()) {
      const std::string field = item_field(items, index++, name);
      if (item[name].is_string() && std::find(values.begin(), values.end(), item[name].as_string()) != values.end()) {
        found.push_back(invalid(field, item[name], "must not be " + shown));
      }
    }
    return found;
  };
  return rule;
}

Rule at_most_when(std::string_view member, std::int64_t maximum, std::string_view when, std::string_view value,
                  std::string_view why) {
  Rule rule;
  const std::string number(member), limit = std::to_string(maximum);
  rule.cel =
      "self." + std::string(when) + " != " + cel_quote(value) + " || !has(self." + number + ") || self." + number + " <= " + limit;
  rule.message = std::string(why);
  rule.reason = "FieldValueInvalid";
  rule.field_path = "." + number;
  rule.check = [=, when = std::string(when), value = std::string(value),
                why = std::string(why)](const Json& self) -> std::vector<Violation> {
    if (self[when].as_string() != value || !self[number].is_number() || self[number].as_double() <= static_cast<double>(maximum))
      return {};
    return {invalid("." + number, self[number], why)};
  };
  return rule;
}

Rule name_is_service_name() {
  static constexpr std::string_view kPattern = "^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$";
  Rule rule;
  rule.message =
      "must be a lower case letter followed by at most 62 lower case letters, digits or '-', not ending in '-', because a Service "
      "gets the same name";
  rule.cel = "self.metadata.name.matches(" + cel_quote(kPattern) + ")";
  rule.reason = "FieldValueInvalid";
  rule.field_path = "";  // A CEL fieldPath may not point into metadata.
  rule.check = [message = rule.message, matcher = std::regex(std::string(kPattern))](const Json& self) -> std::vector<Violation> {
    const Json& name = self.at("metadata/name");
    // Without a name there is a generateName, and the server fills the name in before it is checked.
    if (!name.is_string() || name.as_string().empty()) return {};
    if (name.as_string().size() <= 253 && std::regex_search(name.as_string(), matcher)) return {};
    return {invalid(".metadata.name", name, message)};
  };
  return rule;
}

}  // namespace varda::api::rules
