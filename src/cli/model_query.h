// Which Models, in which order: what `varda models ls --where … --sort-by …` asks. Pure.
//
//   accuracy>=0.9    a metric of status.metrics; also metrics.accuracy, for a metric that is called like a member
//   task=detection   a member: name, namespace, group, task, format, version, url, sourceJob (text), size (bytes; 100Mi, 2G), label
//   and
//                    parent (one of the lists)
//
// Operators are = (or ==), !=, <, <=, >, >=; the last four compare numbers. What a Model does not say fulfils nothing, != neither.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json.h"

namespace varda::cli {

using codec::Json;

class ModelQuery {
 public:
  /// Every one of `where` must hold. `sort_by`: "" as they come, else NAME, NAME:asc or NAME:desc; Models without it come last,
  /// those that are equal in the order they came. kInvalid says what is not understood and what would be.
  static Result<ModelQuery> parse(const std::vector<std::string>& where, std::string_view sort_by);

  /// Of whole objects.
  std::vector<Json> select(std::vector<Json> models) const;

 private:
  enum class Op { kEqual, kDiffers, kLess, kAtMost, kMore, kAtLeast };
  struct Condition {
    std::string name;
    Op op = Op::kEqual;
    std::string value;
  };
  static Result<Condition> parse_condition(const std::string& text);
  static bool holds(const Condition& condition, const Json& model);

  std::vector<Condition> conditions_;
  std::string sort_by_;
  bool descending_ = false;
};

}  // namespace varda::cli
