#include "api/rule.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "base/text.h"
#include "codec/text.h"
#include "schema/pattern.h"

namespace varda::api::rules {

namespace {

// Finds a member by its dotted name. Null if any part is absent.
const Json* find_member(const Json& self, std::string_view name) {
  const Json* at = &self;
  while (at != nullptr) {
    const std::size_t dot = name.find('.');
    at = at->find(name.substr(0, dot));
    if (dot == std::string_view::npos) break;
    name.remove_prefix(dot + 1);
  }
  return at == nullptr || at->is_null() ? nullptr : at;
}

// Native twin of cel_is_set: present and not empty.
bool is_set(const Json& self, const Member& member) {
  const Json* found = find_member(self, member.name);
  if (found == nullptr) return false;
  if (found->is_string()) return !found->as_string().empty();
  if (found->is_array() || (found->is_object() && member.shape != Shape::kObject))
    return !found->empty();
  return true;
}
bool is_set(const Json& self, std::string_view member) {
  return is_set(self, Member{std::string(member)});
}

bool any_set(const Json& self, const std::vector<Member>& members) {
  return std::any_of(members.begin(), members.end(),
                     [&](const Member& member) { return is_set(self, member); });
}

std::string cel_self(std::string_view member) { return "self." + std::string(member); }

// CEL needs has(self.a) && has(self.a.b) before it reads a deeper member.
std::string cel_has(std::string_view member) {
  std::string out;
  for (std::size_t dot = member.find('.');; dot = member.find('.', dot + 1)) {
    out += (out.empty() ? "has(" : " && has(") + cel_self(member.substr(0, dot)) + ")";
    if (dot == std::string_view::npos) return out;
  }
}

std::string cel_is_set(const Member& member) {
  const std::string name = cel_self(member.name);
  switch (member.shape) {
    case Shape::kText:
      return cel_has(member.name) + " && " + name + " != ''";
    case Shape::kList:
      return cel_has(member.name) + " && size(" + name + ") > 0";
    case Shape::kNumber:
    case Shape::kObject:
      return cel_has(member.name);
  }
  return "true";
}

std::string cel_any_set(const std::vector<Member>& members) {
  std::string out;
  for (const Member& member : members)
    out += (out.empty() ? "(" : " || (") + cel_is_set(member) + ")";
  return out;
}

schema::Pattern pattern_of(std::string_view text) { return schema::Pattern::compile(text).value(); }

std::string quote(const Json& value) { return codec::write_json(value); }

std::string item_field(std::string_view list, std::size_t index, std::string_view key) {
  return "." + std::string(list) + "[" + std::to_string(index) + "]." + std::string(key);
}

// List rules hold for an absent list.
std::string cel_for_list(std::string_view list, std::string_view condition) {
  return "!has(self." + std::string(list) + ") || " + std::string(condition);
}

}  // namespace

std::string cel_quote(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string cel_quote(const std::vector<std::string>& texts) {
  return join(texts, ", ", [](const auto& text) { return cel_quote(text); });
}

Violation invalid(std::string field, const Json& value, std::string_view what) {
  return {"FieldValueInvalid", std::move(field),
          "Invalid value: " + quote(value) + ": " + std::string(what)};
}

Rule unless_set(std::string_view member, Rule rule) {
  return unless_any_set({{std::string(member)}}, std::move(rule));
}

Rule when_any_set(std::vector<Member> members, Rule rule) {
  rule.cel = "!(" + cel_any_set(members) + ") || (" + rule.cel + ")";
  rule.check = [members = std::move(members), check = std::move(rule.check)](const Json& self) {
    return any_set(self, members) ? check(self) : std::vector<Violation>{};
  };
  return rule;
}

Rule unless_any_set(std::vector<Member> members, Rule rule) {
  rule.cel = cel_any_set(members) + " || (" + rule.cel + ")";
  rule.check = [members = std::move(members), check = std::move(rule.check)](const Json& self) {
    return any_set(self, members) ? std::vector<Violation>{} : check(self);
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
    if (is_set(self, member)) return {};
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
  rule.check = [=, what = rule.message,
                matcher = pattern_of(pattern)](const Json& self) -> std::vector<Violation> {
    const Json& value = self[text];
    if (!value.is_string()) return {};  // the schema refuses it
    const std::string& found = value.as_string();
    if (matcher.matches(found)) return {};
    return {invalid("." + text, value, what)};
  };
  return rule;
}

Rule matches_when_set(std::string_view member, std::string_view pattern, std::string_view but,
                      std::string_view what) {
  Rule rule;
  const std::string text(member);
  rule.cel = "!has(self." + text + ") || self." + text + " == '' || (self." + text + ".matches(" +
             cel_quote(pattern) + ") && self." + text + " != " + cel_quote(but) + ")";
  rule.message = std::string(what) + ", and not be " + quote(Json(std::string(but)));
  rule.reason = "FieldValueInvalid";
  rule.field_path = "." + text;
  rule.check = [=, what = rule.message, but = std::string(but),
                matcher = pattern_of(pattern)](const Json& self) -> std::vector<Violation> {
    const Json& value = self[text];
    if (!value.is_string() || value.as_string().empty())
      return {};  // the schema refuses other types
    const std::string& found = value.as_string();
    if (found != but && matcher.matches(found)) return {};
    return {invalid("." + text, value, what)};
  };
  return rule;
}

Rule any_required_when(std::vector<Member> members, std::string_view when, std::string_view value,
                       std::string_view why) {
  Rule rule;
  rule.cel =
      "self." + std::string(when) + " != " + cel_quote(value) + " || " + cel_any_set(members);
  rule.message = std::string(why);
  rule.reason = "FieldValueRequired";
  rule.field_path = "." + members.front().name;
  rule.check = [members, when = std::string(when), value = std::string(value),
                why = std::string(why)](const Json& self) -> std::vector<Violation> {
    if (self[when].as_string() != value) return {};
    if (any_set(self, members)) return {};
    return {{"FieldValueRequired", "." + members.front().name, "Required value: " + why}};
  };
  return rule;
}

Rule any_required(std::vector<Member> members, std::string_view why) {
  Rule rule;
  rule.cel = cel_any_set(members);
  rule.message = std::string(why);
  rule.reason = "FieldValueRequired";
  rule.field_path = "." + members.front().name;
  rule.check = [members, message = rule.message](const Json& self) -> std::vector<Violation> {
    if (any_set(self, members)) return {};
    return {{"FieldValueRequired", "." + members.front().name, "Required value: " + message}};
  };
  return rule;
}

Rule forbidden_with(Member member, std::vector<Member> others, std::string_view why) {
  Rule rule;
  rule.cel = "!(" + cel_is_set(member) + ") || !(" + cel_any_set(others) + ")";
  rule.message = std::string(why);
  rule.reason = "FieldValueForbidden";
  rule.field_path = "." + member.name;
  rule.check = [member, others = std::move(others),
                message = rule.message](const Json& self) -> std::vector<Violation> {
    if (!is_set(self, member) || !any_set(self, others)) return {};
    return {{"FieldValueForbidden", "." + member.name, "Forbidden: " + message}};
  };
  return rule;
}

Rule forbidden_when(Member member, std::string_view when, std::string_view value,
                    std::string_view why) {
  Rule rule;
  rule.cel =
      "self." + std::string(when) + " != " + cel_quote(value) + " || !(" + cel_is_set(member) + ")";
  rule.message = std::string(why);
  rule.reason = "FieldValueForbidden";
  rule.field_path = "." + member.name;
  rule.check = [member, when = std::string(when), value = std::string(value),
                why = std::string(why)](const Json& self) -> std::vector<Violation> {
    if (self[when].as_string() != value || !is_set(self, member)) return {};
    return {{"FieldValueForbidden", "." + member.name, "Forbidden: " + why}};
  };
  return rule;
}

Rule one_of(std::string_view member, std::vector<std::string> values, std::string_view why) {
  Rule rule;
  const std::string text(member);
  rule.cel =
      "!(" + cel_is_set({text}) + ") || " + cel_self(text) + " in [" + cel_quote(values) + "]";
  rule.message = std::string(why);
  rule.reason = "FieldValueInvalid";
  rule.field_path = "." + text;
  rule.check = [=, values = std::move(values),
                why = rule.message](const Json& self) -> std::vector<Violation> {
    const Json* found = find_member(self, text);
    if (found == nullptr || !found->is_string() || found->as_string().empty()) return {};
    if (std::find(values.begin(), values.end(), found->as_string()) != values.end()) return {};
    return {invalid("." + text, *found, why)};
  };
  return rule;
}

Rule same(std::string_view member, std::string_view as, std::string_view why) {
  Rule rule;
  const std::string text(member), other(as);
  rule.cel = "!(" + cel_is_set({text}) + ") || !(" + cel_is_set({other}) + ") || " +
             cel_self(text) + " == " + cel_self(other);
  rule.message = std::string(why);
  rule.reason = "FieldValueInvalid";
  rule.field_path = "." + text;
  rule.check = [=, why = rule.message](const Json& self) -> std::vector<Violation> {
    if (!is_set(self, text) || !is_set(self, other)) return {};
    const Json* found = find_member(self, text);
    if (*found == *find_member(self, other)) return {};
    return {invalid("." + text, *found, why)};
  };
  return rule;
}

Rule listed(std::string_view member, std::string_view list, std::string_view key) {
  Rule rule;
  const std::string text(member), items(list), name(key);
  rule.cel = "!has(self." + text + ") || self." + text + " == '' || (has(self." + items +
             ") && self." + items + ".exists(i, has(i." + name + ") && i." + name + " == self." +
             text + "))";
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
    return {invalid("." + text, self[text],
                    message + (known.empty() ? ", which is empty" : ": " + known))};
  };
  return rule;
}

Rule each_matches(std::string_view list, std::string_view key, std::string_view pattern,
                  std::string_view what) {
  Rule rule;
  const std::string items(list), name(key);
  rule.cel = cel_for_list(list, "self." + items + ".all(i, has(i." + name + ") && i." + name +
                                    ".matches(" + cel_quote(pattern) + "))");
  rule.message = name + " of every entry " + std::string(what);
  rule.reason = "FieldValueInvalid";
  rule.field_path = "." + items;
  rule.check = [=, what = std::string(what), matcher = pattern_of(pattern)](const Json& self) {
    std::vector<Violation> found;
    std::size_t index = 0;
    for (const Json& item : self[items].as_array()) {
      const std::string field = item_field(items, index++, name);
      const Json& value = item[name];
      if (!item.is_object() || (!value.is_null() && !value.is_string()))
        continue;  // the schema refuses it
      if (!is_set(item, name)) {
        found.push_back({"FieldValueRequired", field, "Required value: " + what});
      } else if (!matcher.matches(value.as_string())) {
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
  rule.cel = cel_for_list(list, "self." + items + ".all(i, !has(i." + name + ") || self." + items +
                                    ".exists_one(j, has(j." + name + ") && j." + name + " == i." +
                                    name + "))");
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
  rule.cel = cel_for_list(list, "self." + items + ".all(i, !has(i." + name + ") || !(i." + name +
                                    " in [" + cel_values + "]))");
  rule.message = name + " must not be " + shown;
  rule.reason = "FieldValueInvalid";
  rule.field_path = "." + items;
  rule.check = [=](const Json& self) {
    std::vector<Violation> found;
    std::size_t index = 0;
    for (const Json& item : self[items].as_array()) {
      const std::string field = item_field(items, index++, name);
      if (item[name].is_string() &&
          std::find(values.begin(), values.end(), item[name].as_string()) != values.end()) {
        found.push_back(invalid(field, item[name], "must not be " + shown));
      }
    }
    return found;
  };
  return rule;
}

Rule keys_at_most(std::string_view member, std::size_t length_max) {
  Rule rule;
  const std::string name(member), most = std::to_string(length_max);
  rule.cel =
      cel_for_list(member, "self." + name + ".all(k, size(k) >= 1 && size(k) <= " + most + ")");
  rule.message = "every key of " + name + " must have 1 to " + most + " characters";
  rule.reason = "FieldValueInvalid";
  rule.field_path = "." + name;
  rule.check = [=, message = rule.message](const Json& self) -> std::vector<Violation> {
    for (const auto& [key, value] : self[name].as_object()) {
      if (key.empty() || codec::utf8_length(key) > length_max)
        return {{"FieldValueInvalid", "." + name, "Invalid value: " + message}};
    }
    return {};
  };
  return rule;
}

Rule at_most_when(std::string_view member, std::int64_t maximum, std::string_view when,
                  std::string_view value, std::string_view why) {
  Rule rule;
  const std::string number(member), limit = std::to_string(maximum);
  rule.cel = "self." + std::string(when) + " != " + cel_quote(value) + " || !has(self." + number +
             ") || self." + number + " <= " + limit;
  rule.message = std::string(why);
  rule.reason = "FieldValueInvalid";
  rule.field_path = "." + number;
  rule.check = [=, when = std::string(when), value = std::string(value),
                why = std::string(why)](const Json& self) -> std::vector<Violation> {
    if (self[when].as_string() != value || !self[number].is_number() ||
        self[number].as_double() <= static_cast<double>(maximum))
      return {};
    return {invalid("." + number, self[number], why)};
  };
  return rule;
}

Rule at_most(std::string_view member, std::int64_t maximum, std::string_view why) {
  Rule rule;
  const std::string number(member);
  rule.cel = "!has(self." + number + ") || self." + number + " <= " + std::to_string(maximum);
  rule.message = std::string(why);
  rule.reason = "FieldValueInvalid";
  rule.field_path = "." + number;
  rule.check = [=, why = rule.message](const Json& self) -> std::vector<Violation> {
    if (!self[number].is_number() || self[number].as_double() <= static_cast<double>(maximum))
      return {};
    return {invalid("." + number, self[number], why)};
  };
  return rule;
}

namespace {

Rule strictly(std::string_view member, const char* sign, std::int64_t bound, std::string what,
              std::function<bool(double)> right) {
  Rule rule;
  const std::string number(member);
  rule.cel = "!has(self." + number + ") || self." + number + " " + sign + " " +
             std::to_string(bound) + ".0";
  rule.message = what;
  rule.reason = "FieldValueInvalid";
  rule.field_path = "." + number;
  rule.check = [number, what = std::move(what),
                right = std::move(right)](const Json& self) -> std::vector<Violation> {
    const Json& value = self[number];
    if (!value.is_number() || right(value.as_double())) return {};
    return {invalid("." + number, value, what)};
  };
  return rule;
}

}  // namespace

Rule above(std::string_view member, std::int64_t bound) {
  return strictly(member, ">", bound, "must be greater than " + std::to_string(bound),
                  [bound](double value) { return value > static_cast<double>(bound); });
}

Rule below(std::string_view member, std::int64_t bound) {
  return strictly(member, "<", bound, "must be less than " + std::to_string(bound),
                  [bound](double value) { return value < static_cast<double>(bound); });
}

Rule name_is_service_name() { return name_is_label(63, "because a Service gets the same name"); }

Rule name_is_label(std::size_t length_max, std::string_view why) {
  const std::string pattern =
      "^[a-z]([-a-z0-9]{0," + std::to_string(length_max - 2) + "}[a-z0-9])?$";
  Rule rule;
  rule.message = "must be a lower case letter followed by at most " +
                 std::to_string(length_max - 1) +
                 " lower case letters, digits or '-', not ending in '-', " + std::string(why);
  rule.cel = "self.metadata.name.matches(" + cel_quote(pattern) + ")";
  rule.reason = "FieldValueInvalid";
  rule.field_path = "";  // A CEL fieldPath may not point into metadata.
  rule.check = [message = rule.message,
                matcher = pattern_of(pattern)](const Json& self) -> std::vector<Violation> {
    const Json& name = self.at("metadata/name");
    // An object without a name has a generateName. The server makes the name before this check.
    if (!name.is_string() || name.as_string().empty()) return {};
    if (matcher.matches(name.as_string())) return {};
    return {invalid(".metadata.name", name, message)};
  };
  return rule;
}

}  // namespace varda::api::rules
