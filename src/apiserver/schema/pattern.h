// Pattern: a regular expression of a schema. RE2 syntax, which is what the Kubernetes API means by `pattern`, in linear time: the
// expression comes from a user and the text from another.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::apiserver::schema {

/// Immutable; thread-safe; cheap to copy.
class Pattern {
 public:
  /// kInvalid: "error parsing regexp: why: `part`".
  static Result<Pattern> compile(std::string_view expression);
  /// Found anywhere in the text: patterns are not anchored.
  bool matches(std::string_view text) const;
  const std::string& text() const { return text_; }

 private:
  struct Compiled;
  std::string text_;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace varda::apiserver::schema
