// The templates of cross-field rules. Each makes the CEL text and its native twin from the same arguments.
//
// Members are named relative to the struct the rule stands at. A member counts as set when it is there and not "" , [] or {}.
// `native messages` name the very item ("spec.manifest[1].sha256sum"); CEL can only name the list.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/schema.h"

namespace varda::api::rules {

enum class Shape { kText, kList, kNumber };  // how "set" is asked in CEL: strings, lists and maps, numbers

struct Member {
  std::string name;
  Shape shape = Shape::kText;
};

/// The rule holds by itself while `member` (a string) is set.
Rule unless_set(std::string_view member, Rule rule);

/// `member` must be set; `why` ends the message: "targetVersion is required without an image".
Rule required(Member member, std::string_view why);
/// The string `member`, when there, matches `pattern` (found anywhere in it); `what` says what is expected.
Rule matches(std::string_view member, std::string_view pattern, std::string_view what);
/// One of the members must be set when `when` equals `value`; the first is named.
Rule any_required_when(std::vector<Member> members, std::string_view when, std::string_view value, std::string_view why);
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
/// At the root of a kind: metadata.name is a DNS-1035 label, because a Service of the same name is made.
Rule name_is_service_name();

}  // namespace varda::api::rules
