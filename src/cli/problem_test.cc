#include "cli/problem.h"

#include <gtest/gtest.h>

namespace varda::cli {
namespace problem_test {

std::string text(const char* message) { return readable(Error(Code::kInvalid, message)).message(); }

TEST(Problem, PatchErrorStartsWithTheCause) {
  EXPECT_EQ(
      text(
          R"( "" is invalid: patch: Invalid value: "{\"kind\":\"A\",\"spec\":{}}": strict decoding error: unknown field "spec.nope")"),
      R"(strict decoding error: unknown field "spec.nope")");
  EXPECT_EQ(text("models \"a\" not found"), "models \"a\" not found");
}

TEST(Problem, UnquotedStringErrorAdvisesQuotes) {
  EXPECT_EQ(
      text(R"(spec.manifest[0].sha256sum in body must be of type string: "integer")"),
      R"(spec.manifest[0].sha256sum in body must be of type string: "integer"; write the value in quotes, since YAML reads it as an integer)");
  EXPECT_EQ(text(R"(spec.port in body must be of type integer: "string")"),
            R"(spec.port in body must be of type integer: "string")");
}

}  // namespace problem_test
}  // namespace varda::cli
