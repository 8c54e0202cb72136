#include "meta/json_path.h"

#include <gtest/gtest.h>
#include <utility>

namespace varda::meta {
namespace json_path_test {

using codec::Json;

Json object() {
  return *codec::parse_json(
      R"({"kind": "K", "spec": {"list": [{"n": 1, "s": "1"}, {"n": 2, "m": {"x]": true}}]},
          "status": {"conditions": [{"type": "A", "status": "x"}, {"type": "Ready", "status": "True"}]},
          "metadata": {"labels": {"a.b/c": "v"}}})");
}

// All values that a path finds, as a JSON array.
TEST(JsonPath, PathsFindTheSameValuesAsKubectl) {
  constexpr std::pair<std::string_view, std::string_view> kCases[] = {
      {".kind", R"(["K"])"},
      {"$.kind", R"(["K"])"},
      {"@.kind", R"(["K"])"},
      {"{.kind}", R"(["K"])"},
      {" { .kind } ", R"(["K"])"},
      {R"(.status.conditions[?(@.type=="Ready")].status)", R"(["True"])"},
      {".status.conditions[?( @.type == 'Ready' )].status", R"(["True"])"},
      {".status.conditions[?(@.type!='Ready')].status", R"(["x"])"},
      {".spec.list[?(@.n==2)].n", "[2]"},
      {".spec.list[?(@.n=='2')].n", "[]"},
      {".spec.list[?(@.s!='2')].n", "[1]"},
      {".spec.list[?(@.m['x]']==true)].n", "[2]"},
      {".spec.list[0].n", "[1]"},
      {".spec.list[-1].n", "[2]"},
      {".spec.list[2].n", "[]"},
      {".spec.list[-3].n", "[]"},
      {".spec.list[*].n", "[1,2]"},
      {".spec.list.[0].n", "[1]"},
      {".metadata.labels['a.b/c']", R"(["v"])"},
      {".metadata.labels[\"a.b/c\"]", R"(["v"])"},
      {R"(.metadata.labels.a\.b/c)", R"(["v"])"},
      {".metadata.*", R"([{"a.b/c":"v"}])"},
      {".spec.none.at.all", "[]"},
      {".kind.deeper", "[]"},
  };
  const Json document = object();
  for (const auto& [path, wanted] : kCases) {
    const auto parsed = JsonPath::parse(path);
    ASSERT_TRUE(parsed.ok()) << path << parsed.error();
    Json found = Json::array();
    for (const Json* value : parsed->find(document)) found.push_back(*value);
    EXPECT_EQ(codec::write_json(found), wanted) << path;
  }
  for (const std::string_view whole : {"", ".", "$", "@", "{}", "{.}"})
    EXPECT_EQ(JsonPath::parse(whole)->find(document), std::vector<const Json*>{&document}) << whole;
}

TEST(JsonPath, OtherSyntaxIsInvalid) {
  for (const char* wrong :
       {"nodot", ".a[", ".a[x]", ".a[]", ".a..b", ".a.", ".a]b[", ".items[?(@.x>1)]",
        ".items[?(@.x)]", ".items[?(.x==1)]", ".items[?(@.x==Ready)]", ".items[?(@.x==1]",
        ".items[0:2]", ".items['a]"})
    EXPECT_EQ(JsonPath::parse(wrong).error().code(), Code::kInvalid) << wrong;
}

TEST(JsonPath, DollarRefersToTheDocumentAndAtToThePart) {
  const Json document = object();
  const Json& part = document["spec"];
  EXPECT_EQ(*JsonPath::parse("$.kind")->find(part, document).front(), Json("K"));
  EXPECT_EQ(*JsonPath::parse("@.list[0].n")->find(part, document).front(), Json(1));
}

}  // namespace json_path_test
}  // namespace varda::meta
