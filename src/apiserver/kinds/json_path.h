// JsonPath: the subset of kubectl's JSONPath that printer columns, selectable fields and scale
// paths use.
//
//   .spec.replicas   .status.conditions[?(@.type=="Ready")].status   .items[0].name
//   .metadata.labels['a.b/c']   .list[*].x
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json.h"

namespace varda::apiserver {

using codec::Json;

/// Immutable; thread-safe.
class JsonPath {
 public:
  /// kInvalid: unsupported syntax.
  static Result<JsonPath> parse(std::string_view text);
  /// All matching values in document order. The pointers live as long as the document.
  std::vector<const Json*> find(const Json& document) const;

 private:
  struct Step {
    enum class Kind { kMember, kIndex, kAll, kFilter } kind = Kind::kMember;
    std::string name;        // member name; in a filter, the compared member
    std::int64_t index = 0;  // negative: from the end
    bool negated = false;    // != in a filter
    Json value;              // compared with in a filter
  };
  Status parse_bracket(std::string_view inside);
  std::vector<Step> steps_;
};

}  // namespace varda::apiserver
