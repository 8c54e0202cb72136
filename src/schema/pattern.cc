#include "schema/pattern.h"

#include <re2/re2.h>

namespace varda::schema {

struct Pattern::Compiled {
  re2::RE2 expression;
};

Result<Pattern> Pattern::compile(std::string_view expression) {
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(4 << 20);
  auto compiled = std::shared_ptr<const Compiled>(
      new Compiled{re2::RE2(re2::StringPiece(expression.data(), expression.size()), options)});
  if (!compiled->expression.ok()) {
    std::string message = "error parsing regexp: " + compiled->expression.error();
    // RE2 appends the part after a colon, without Go's quotes.
    const std::string& part = compiled->expression.error_arg();
    if (!part.empty() && message.ends_with(": " + part))
      message.resize(message.size() - part.size() - 2);
    if (!part.empty()) message += ": `" + part + "`";
    return Error(Code::kInvalid, std::move(message));
  }
  Pattern pattern;
  pattern.text_ = std::string(expression);
  pattern.compiled_ = std::move(compiled);
  return pattern;
}

bool Pattern::matches(std::string_view text) const {
  return re2::RE2::PartialMatch(re2::StringPiece(text.data(), text.size()), compiled_->expression);
}

}  // namespace varda::schema
