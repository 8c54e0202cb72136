// Selection and order of Models for `varda models ls --where … --sort-by …`. Pure.
//
//   accuracy>=0.9    a metric of status.metrics; also metrics.accuracy, if named like a member
//   task=detection   a member: name, namespace, group, task, format, version, url, sourceJob
//                    (text), size (bytes; 100Mi, 2G), label and parent (one item of the list)
//   metadata.a=b     the value of a in spec.metadata (text)
//
// Operators are = (or ==), !=, <, <=, >, >=; the last four compare numbers. A Model without the
// member matches no condition, not even !=.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json.h"

namespace varda::cli {

using codec::Json;

/// Conditions with flags of their own, for the most frequent questions. "": none.
struct ModelShorthands {
  std::string task;      // task=TASK
  std::string metric;    // the metric of `min` and `max`
  std::string min, max;  // metrics.METRIC>=MIN, metrics.METRIC<=MAX
};

class ModelQuery {
 public:
  /// All conditions in `where` and `shorthands` must hold. `sort_by`: "" keeps the order; else
  /// NAME, NAME:asc or NAME:desc. Sorting is stable; Models without the member come last. kInvalid:
  /// the message names the error and the valid forms.
  static Result<ModelQuery> parse(const std::vector<std::string>& where, std::string_view sort_by,
                                  const ModelShorthands& shorthands = {});

  /// Expects whole objects.
  std::vector<Json> select(std::vector<Json> models) const;

 private:
  enum class Op { kEqual, kDiffers, kLess, kAtMost, kMore, kAtLeast };
  struct Condition {
    std::string name;
    Op op = Op::kEqual;
    std::string value;
  };
  static Result<Condition> parse_condition(const std::string& text);
  Status add(const ModelShorthands& shorthands);
  static bool holds(const Condition& condition, const Json& model);

  std::vector<Condition> conditions_;
  std::string sort_by_;
  bool descending_ = false;
};

}  // namespace varda::cli
