// Label and field selectors: the text of queries, and the LabelSelector of objects.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/json.h"

namespace varda::meta {

using codec::Json;

/// A conjunction of label requirements. An empty one matches everything.
class LabelSelector {
 public:
  enum class Operator { kIn, kNotIn, kExists, kDoesNotExist, kGreater, kLess };
  struct Requirement {
    std::string key;
    Operator op = Operator::kExists;
    std::vector<std::string> values;
  };

  /// "app=web,tier in (a,b),!old,weight>3": the text of ?labelSelector=.
  static Result<LabelSelector> parse(std::string_view text);
  /// A LabelSelector or NodeSelectorTerm-like object: {matchLabels, matchExpressions}.
  static Result<LabelSelector> from_json(const Json& selector);
  static LabelSelector equals(const std::map<std::string, std::string>& labels);

  bool matches(const std::map<std::string, std::string>& labels) const;
  /// Like matches(), for metadata.labels of a JSON object.
  bool matches_labels(const Json& labels) const;
  bool empty() const { return requirements_.empty(); }
  const std::vector<Requirement>& requirements() const { return requirements_; }
  std::string str() const;

 private:
  std::vector<Requirement> requirements_;
};

/// "metadata.name=x,status.phase!=Running": equality and inequality over dotted fields.
class FieldSelector {
 public:
  struct Term {
    std::string field, value;
    bool negated = false;
  };
  static Result<FieldSelector> parse(std::string_view text);
  /// `read` gives the text of a field.
  bool matches(const std::function<std::string(std::string_view field)>& read) const;
  bool empty() const { return terms_.empty(); }
  const std::vector<Term>& terms() const { return terms_; }
  /// The value that a term requires for the field; absent: no such term.
  std::optional<std::string> exact(std::string_view field) const;
  std::string str() const;

 private:
  std::vector<Term> terms_;
};

}  // namespace varda::meta
