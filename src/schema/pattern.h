// Pattern: a regular expression of a schema, in RE2 syntax like `pattern` in the Kubernetes API.
// Matching takes linear time, because expression and text come from users.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace varda::schema {

/// Immutable; thread-safe; cheap to copy.
class Pattern {
 public:
  /// kInvalid: "error parsing regexp: why: `part`".
  static Result<Pattern> compile(std::string_view expression);
  /// True for a match anywhere in the text: patterns are not anchored.
  bool matches(std::string_view text) const;
  const std::string& text() const { return text_; }

 private:
  struct Compiled;
  std::string text_;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace varda::schema
