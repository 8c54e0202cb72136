// Templates of cross-field rules. Each makes the CEL text and the native twin from the same
// arguments.
//
// Names of members are relative to the struct with the rule. A dot separates levels
// ("template.spec.nodeName"), and every struct on the way may be absent. A member is set if it is
// present and not "", [] or {}. An object (kObject) is also set if it is {}. Native messages name
// the exact item ("spec.manifest[1].sha256sum"); CEL can only name the list.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/schema.h"

namespace varda::api::rules {

// The CEL test for "set" differs: strings, lists and maps, numbers, structs.
enum class Shape { kText, kList, kNumber, kObject };

struct Member {
  std::string name;
  Shape shape = Shape::kText;
};

/// The rule applies only while `member` (a string) is not set.
Rule unless_set(std::string_view member, Rule rule);
/// The rule applies only while one of `members` is set.
Rule when_any_set(std::vector<Member> members, Rule rule);
/// The rule applies only while none of `members` is set.
Rule unless_any_set(std::vector<Member> members, Rule rule);

/// `member` must be set; `why` ends the message: "targetVersion is required without an image".
Rule required(Member member, std::string_view why);
/// If present, the string `member` matches `pattern` anywhere. `what` is the expected form.
Rule matches(std::string_view member, std::string_view pattern, std::string_view what);
/// If set, the string `member` matches `pattern` anywhere, and is not `but`.
Rule matches_when_set(std::string_view member, std::string_view pattern, std::string_view but,
                      std::string_view what);
/// One of the members must be set if `when` equals `value`. The cause names the first member.
Rule any_required_when(std::vector<Member> members, std::string_view when, std::string_view value,
                       std::string_view why);
/// One of the members must be set. The cause names the first member.
Rule any_required(std::vector<Member> members, std::string_view why);
/// `member` must not be set while one of `others` is.
Rule forbidden_with(Member member, std::vector<Member> others, std::string_view why);
/// `member` must not be set if `when` equals `value`.
Rule forbidden_when(Member member, std::string_view when, std::string_view value,
                    std::string_view why);
/// If set, the string `member` is one of `values`.
Rule one_of(std::string_view member, std::vector<std::string> values, std::string_view why);
/// Both strings are equal if both are set. The cause names the first.
Rule same(std::string_view member, std::string_view as, std::string_view why);
/// If set, the string `member` is the `key` of an item of `list`.
Rule listed(std::string_view member, std::string_view list, std::string_view key);
/// Every item of `list` has a string `key` that matches `pattern` as a whole. `what` is the
/// expected form.
Rule each_matches(std::string_view list, std::string_view key, std::string_view pattern,
                  std::string_view what);
/// No two items of `list` have the same `key`.
Rule each_unique(std::string_view list, std::string_view key);
/// No item of `list` has one of these values as its `key`.
Rule each_differs(std::string_view list, std::string_view key, std::vector<std::string> values);
/// Every key of the map `member` has 1 to `length_max` characters.
Rule keys_at_most(std::string_view member, std::size_t length_max);
/// If present, the integer `member` is at most `maximum` if `when` equals `value`.
Rule at_most_when(std::string_view member, std::int64_t maximum, std::string_view when,
                  std::string_view value, std::string_view why);
/// If present, the integer `member` is at most `maximum`.
Rule at_most(std::string_view member, std::int64_t maximum, std::string_view why);
/// If present, the number `member` is greater than, or less than, `bound`. A schema has inclusive
/// bounds only.
Rule above(std::string_view member, std::int64_t bound);
Rule below(std::string_view member, std::int64_t bound);
/// At the root of a kind: metadata.name is a DNS-1035 label, because a Service gets the same name.
Rule name_is_service_name();
/// At the root of a kind: metadata.name is a DNS-1035 label of at most `length_max` characters;
/// `why` ends the message: "because ...".
Rule name_is_label(std::size_t length_max, std::string_view why);

// Helpers for rules without a template.

std::string cel_quote(std::string_view text);
/// "'a', 'b'"
std::string cel_quote(const std::vector<std::string>& texts);
Violation invalid(std::string field, const Json& value, std::string_view what);

}  // namespace varda::api::rules
