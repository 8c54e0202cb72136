#include "cli/problem.h"

#include <string>

namespace varda::cli {

Error readable(const Error& error) {
  std::string text = error.message();
  constexpr std::string_view kPatch = "is invalid: patch: Invalid value: \"";
  if (const auto begin = text.find(kPatch); begin != std::string::npos) {
    const auto end = text.rfind("}\": ");
    if (end != std::string::npos && end > begin) text.erase(0, end + 4);
  }
  for (const char* type : {"integer", "number", "boolean"}) {
    if (text.find("must be of type string: \"" + std::string(type) + "\"") == std::string::npos)
      continue;
    text += "; write the value in quotes, since YAML reads it as " +
            std::string(type == std::string_view("integer") ? "an " : "a ") + type;
    break;
  }
  return Error(error.code(), std::move(text)).as_terminal(error.terminal());
}

}  // namespace varda::cli
