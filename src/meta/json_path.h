// JsonPath: the part of kubectl's JSONPath that one value needs. Printer columns, selectable
// fields, scale paths and `-o jsonpath=` use it.
//
//   .spec.replicas   .status.conditions[?(@.type=="Ready")].status   .items[0].name   .list[-1]
//   .metadata.labels['a.b/c']   .metadata.labels.a\.b/c   .list[*].x   $.kind   @.name   {.spec}
//
// Absent members find nothing. Filters compare with == or !=, by type: "1" and 1 differ, and items
// without the member do not match.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json.h"

namespace varda::meta {

/// Immutable; thread-safe.
class JsonPath {
 public:
  /// kInvalid: other syntax.
  static Result<JsonPath> parse(std::string_view text);
  /// All matching values in document order. The pointers live as long as the document.
  std::vector<const codec::Json*> find(const codec::Json& document) const;
  /// The same from `node`, a part of `document`. A path that begins with '$' begins at `document`.
  std::vector<const codec::Json*> find(const codec::Json& node, const codec::Json& document) const;

 private:
  struct Step {
    enum class Kind { kMember, kIndex, kAll, kFilter } kind = Kind::kMember;
    std::string name;        // of a member
    std::int64_t index = 0;  // negative: from the end
    // A filter: the compared part of an item, and the value.
    std::vector<Step> part;
    codec::Json value;
    bool negated = false;  // !=
  };
  static Result<std::vector<Step>> parse_steps(std::string_view text);
  static Result<Step> parse_bracket(std::string_view inside);
  static std::vector<const codec::Json*> walk(const std::vector<Step>& steps,
                                              const codec::Json& from);

  bool from_root_ = false;  // begins with '$'
  std::vector<Step> steps_;
};

}  // namespace varda::meta
