// Schemas as files: testdata/schema/*.json holds a schema and results for objects,
// testdata/structural/*.json rejected schemas. UPDATE_GOLDEN=1 rewrites the expectations.
#include "schema/schema.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "base/testing/golden.h"
#include "schema/structural.h"

namespace varda::schema {
namespace schema_test {

std::vector<std::filesystem::path> files(const char* folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(VARDA_TESTDATA) / folder))
    found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

Json read(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  auto parsed = codec::parse_json(text.str());
  EXPECT_TRUE(parsed.ok()) << path << ": " << (parsed.ok() ? "" : parsed.error().message());
  return parsed.ok() ? std::move(parsed).value() : Json();
}

Json lines(const Causes& causes) {
  std::vector<std::string> texts;
  for (const StatusCause& cause : causes)
    texts.push_back(cause.reason + " " + cause.field + ": " + cause.message);
  std::sort(texts.begin(), texts.end());
  Json list = Json::array();
  for (const std::string& text : texts) list.push_back(text);
  return list;
}

// The result of a write: pruned fields, the object with defaults, and errors.
Json outcome(const Schema& schema, const Json& test) {
  Json object = test["object"];
  std::vector<std::string> unknown;
  prune(schema, object, unknown);
  std::sort(unknown.begin(), unknown.end());
  apply_defaults(schema, object);
  const Json* old = test.find("old");
  Causes causes = validate(schema, object, {.old = old, .field = ""});
  for (StatusCause& cause : validate_lists(schema, object, "")) causes.push_back(std::move(cause));
  for (StatusCause& cause : validate_embedded(schema, object, ""))
    causes.push_back(std::move(cause));
  Json result = Json::object();
  if (!unknown.empty()) {
    Json paths = Json::array();
    for (const std::string& path : unknown) paths.push_back(path);
    result.set("unknown", std::move(paths));
  }
  if (causes.empty()) {
    result.set("object", std::move(object));
  } else {
    result.set("causes", lines(causes));
  }
  return result;
}

TEST(Schema, PruningDefaultsAndValidationMatchTheGoldenCases) {
  for (const auto& path : files("schema")) {
    Json file = read(path);
    auto schema = compile(file["schema"]);
    ASSERT_TRUE(schema.ok()) << path << schema.error().message();
    EXPECT_TRUE(check_structural(file["schema"], "s").empty())
        << path << codec::write_json(lines(check_structural(file["schema"], "s")));
    bool differs = false;
    for (Json& test : file["cases"].array_items()) {
      const Json got = outcome(**schema, test);
      EXPECT_EQ(got, test["expect"])
          << path << ": " << test["name"].as_string() << "\n got " << codec::write_json(got);
      differs = differs || got != test["expect"];
      test.set("expect", got);
    }
    if (updating_goldens() && differs)
      rewrite_golden(path, codec::write_json_pretty(file, 1) + "\n");
  }
}

TEST(Structural, CausesMatchTheGoldenCases) {
  for (const auto& path : files("structural")) {
    Json file = read(path);
    bool differs = false;
    for (Json& test : file["cases"].array_items()) {
      const Json got = lines(check_structural(test["schema"], "schema"));
      EXPECT_EQ(got, test["causes"])
          << path << ": " << test["name"].as_string() << "\n got " << codec::write_json(got);
      differs = differs || got != test["causes"];
      test.set("causes", got);
    }
    if (updating_goldens() && differs)
      rewrite_golden(path, codec::write_json_pretty(file, 1) + "\n");
  }
}

TEST(Schema, UnchangedInvalidValuesAreNotReported) {
  auto schema = compile(Json::object(
      {{"type", "object"},
       {"properties", Json::object({{"a", Json::object({{"type", "string"}, {"maxLength", 3}})},
                                    {"b", Json::object({{"type", "string"}})}})}}));
  ASSERT_TRUE(schema.ok());
  const Json old = Json::object({{"a", "waytoolong"}, {"b", "1"}});
  EXPECT_TRUE(validate(**schema, Json::object({{"a", "waytoolong"}, {"b", "2"}}),
                       {.old = &old, .field = ""})
                  .empty());
  EXPECT_EQ(validate(**schema, Json::object({{"a", "alsotoolong"}, {"b", "1"}}),
                     {.old = &old, .field = ""})
                .size(),
            1u);
}

TEST(Pattern, HostileExpressionsTakeLinearTime) {
  auto pattern = Pattern::compile("^(a+)+$");
  ASSERT_TRUE(pattern.ok());
  EXPECT_FALSE(pattern->matches(std::string(100'000, 'a') + "!"));
}

TEST(Pattern, ErrorDescribesTheInvalidExpression) {
  auto pattern = Pattern::compile("[");
  ASSERT_FALSE(pattern.ok());
  EXPECT_EQ(pattern.error().message(), "error parsing regexp: missing ]: `[`");
}

}  // namespace schema_test
}  // namespace varda::schema
