// The templates of cross-field rules. Each makes the CEL text and its native twin from the same arguments.
//
// Members are named relative to the struct the rule stands at, with dots where they lie deeper ("template.spec.nodeName"; every
// struct on the way may be absent). A member counts as set when it is there and not "", [] or {}; an object (kObject) also when it
// is {}. `native messages` name the very item ("spec.manifest[1].sha256sum"); CEL can only name the list.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/schema.h"

namespace varda::api::rules {

enum class Shape { kText, kList, kNumber, kObject };  // how "set" is asked in CEL: strings, lists and maps, numbers, structs

struct Member {
  std::string name;
  Shape shape = Shape::kText;
};

/// The rule holds by itself while `member` (a string) is set.
Rule unless_set(std::string_view member, Rule rule);
/// The rule holds by itself while none of `members` is set.
Rule when_any_set(std::vector<Member> members, Rule rule);
/// The rule holds by itself while one of `members` is set.
Rule unless_any_set(std::vector<Member> members, Rule rule);

/// `member` must be set; `why` ends the message: "targetVersion is required without an image".
Rule required(Member member, std::string_view why);
/// The string `member`, when there, matches `pattern` (found anywhere in it); `what` says what is expected.
Rule matches(std::string_view member, std::string_view pattern, std::string_view what);
/// The string `member`, when set, matches `pattern` (found anywhere in it), and is not `but`.
Rule matches_when_set(std::string_view member, std::string_view pattern, std::string_view but, std::string_view what);
/// One of the members must be set when `when` equals `value`; the first is named.
Rule any_required_when(std::vector<Member> members, std::string_view when, std::string_view value, std::string_view why);
/// One of the members must be set; the first is named.
Rule any_required(std::vector<Member> members, std::string_view why);
/// `member` must not be set while one of `beside` is.
Rule forbidden_beside(Member member, std::vector<Member> beside, std::string_view why);
/// `member` must not be set when `when` equals `value`.
Rule forbidden_when(Member member, std::string_view when, std::string_view value, std::string_view why);
/// The string `member`, when set, is one of `values`.
Rule one_of(std::string_view member, std::vector<std::string> values, std::string_view why);
/// The strings are the same when both are set; the first is named.
Rule same(std::string_view member, std::string_view as, std::string_view why);
/// The string `member`, when set, is the `key` of an item of `list`.
Rule listed(std::string_view member, std::string_view list, std::string_view key);
/// Every item of `list` has a string `key` that matches `pattern` (whole); `what` says what is expected.
Rule each_matches(std::string_view list, std::string_view key, std::string_view pattern, std::string_view what);
/// No two items of `list` have the same `key`.
Rule each_unique(std::string_view list, std::string_view key);
/// No item of `list` has one of these values as its `key`.
Rule each_differs(std::string_view list, std::string_view key, std::vector<std::string> values);
/// The integer `member`, when there, is at most `maximum` when `when` equals `value`.
Rule at_most_when(std::string_view member, std::int64_t maximum, std::string_view when, std::string_view value,
                  std::string_view why);
/// The integer `member`, when there, is at most `maximum`.
Rule at_most(std::string_view member, std::int64_t maximum, std::string_view why);
/// At the root of a kind: metadata.name is a DNS-1035 label, because a Service of the same name is made.
Rule name_is_service_name();
/// At the root of a kind: metadata.name is a DNS-1035 label of at most `length_max` characters; `why` ends the message: "because
/// ...".
Rule name_is_label(std::size_t length_max, std::string_view why);

// For rules that are no template: what they are made of.

std::string cel_quote(std::string_view text);
/// "'a', 'b'"
std::string cel_quote(const std::vector<std::string>& texts);
Violation invalid(std::string field, const Json& value, std::string_view what);

}  // namespace varda::api::rules
