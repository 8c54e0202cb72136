#include "cli/printer.h"

#include <gtest/gtest.h>

#include "meta/object.h"

namespace varda::cli {
namespace {

using codec::parse_json;

TEST(JsonPath, CommonKubectlPathsAreEvaluated) {
  const Json object = *parse_json(
      R"({"metadata":{"name":"a","labels":{"x.y/z":"1"}},"status":{"url":"http://h","n":3,
      "conditions":[{"type":"Ready","status":"True"},{"type":"Other","status":"False"}]},"items":[{"name":"p"},{"name":"q"}]})");
  const std::pair<const char*, std::string> cases[] = {
      {"{.status.url}", "http://h"},
      {".status.n", "3"},
      {"{.items[*].name}", "p q"},
      {"{.items[0].name}-{.items[-1].name}", "p-q"},
      {"{.metadata.labels.x\\.y/z}", "1"},
      {"{.metadata.labels['x.y/z']}", "1"},
      {"{.status.conditions[?(@.type==\"Ready\")].status}", "True"},
      {"{range .items[*]}{.name}{\"\\n\"}{end}", "p\nq\n"},
      {"{.status.missing}", ""},
      {"{range .nothing[*]}{.x}{end}!", "!"},
      {"{range .items[*]}{@.name}={$.status.n} {end}", "p=3 q=3 "},
      {"{.items[?(@.name!='p')].name}", "q"},
      {"{$}", write_json(object)},
      {"{.status.conditions[0]}", R"({"type":"Ready","status":"True"})"},
  };
  for (const auto& [path, wanted] : cases) {
    auto got = evaluate_jsonpath(path, object);
    ASSERT_TRUE(got.ok()) << path << got.error();
    EXPECT_EQ(*got, wanted) << path;
  }
  for (const char* bad :
       {"{.a", "{range .items[*]}", "{end}", "{.items[x]}", "{items}", "{.items[?(@.x>1)]}"}) {
    EXPECT_FALSE(evaluate_jsonpath(bad, object).ok()) << bad;
  }
}

TEST(Table, ColumnsLineUpAndWideOnesStayHidden) {
  const Json table = *parse_json(
      R"({"columnDefinitions":[{"name":"Name","priority":0},{"name":"Ready","priority":0},{"name":"IP","priority":1}],
      "rows":[{"cells":["long-name","1/1","127.0.0.2"],"object":{"metadata":{"namespace":"default"}}},{"cells":["b",null,"x\u001b[2J"]}]})");
  EXPECT_EQ(print_table(table, {}), "NAME        READY\nlong-name   1/1\nb\n");
  EXPECT_EQ(
      print_table(table,
                  {.wide = true, .headers = false, .namespaces = false, .name_prefix = "pod/"}),
      "pod/long-name   1/1   127.0.0.2\npod/b                 x?[2J\n");
}

TEST(Table, LaterLinesKeepTheColumnWidths) {
  std::vector<std::size_t> widths;
  EXPECT_EQ(align({{"NAME", "AGE"}, {"long-name", "1s"}}, widths),
            "NAME        AGE\nlong-name   1s\n");
  EXPECT_EQ(align({{"b", "2s"}}, widths), "b           2s\n");
  EXPECT_EQ(align({{"a-longer-name", "3s"}}, widths), "a-longer-name   3s\n");
  EXPECT_EQ(align({{"b", "4s"}}, widths), "b               4s\n");
}

TEST(Describe, TextShowsSpecConditionsAndEvents) {
  const Json object = *parse_json(
      R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"d","creationTimestamp":"2024-01-01T00:00:00Z"},
      "spec":{"nodeName":"edge0"},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2024-01-01T00:00:00Z"}]}})");
  const Json event = *parse_json(
      R"({"type":"Warning","reason":"Bad","message":"why","count":3,"lastTimestamp":"2024-01-01T00:00:30Z","source":{"component":"c"}})");
  const std::string text = describe(object, {event}, *meta::parse_time("2024-01-01T00:01:00Z"));
  EXPECT_NE(text.find("Spec:\n  nodeName: edge0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("Ready   True"), std::string::npos) << text;
  EXPECT_NE(text.find("Warning   Bad      30s (x3)   c      why"), std::string::npos) << text;
}

TEST(Describe, OnlyEventsOfThisObjectAreShownOldestFirst) {
  const auto event = [](const std::string& reason, const std::string& last,
                        const std::string& api_version, const std::string& uid) {
    return Json::object(
        {{"reason", reason},
         {"lastTimestamp", last},
         {"involvedObject", Json::object({{"apiVersion", api_version}, {"uid", uid}})}});
  };
  const auto object = [](const std::string& api_version, const std::string& kind) {
    return Json::object({{"apiVersion", api_version},
                         {"kind", kind},
                         {"metadata", Json::object({{"name", "train"}, {"uid", "u1"}})}});
  };
  const std::vector<Json> events = {
      event("Later", "2024-01-01T00:00:30Z", "edgeai.io/v1alpha1", "u1"),
      event("Earlier", "2024-01-01T00:00:10Z", "edgeai.io/v1beta1", "u1"),
      event("OtherGroup", "2024-01-01T00:00:20Z", "sedna.io/v1alpha1", "u1"),
      event("OneBefore", "2024-01-01T00:00:20Z", "edgeai.io/v1alpha1", "u0")};
  const WallTime now = *meta::parse_time("2024-01-01T00:01:00Z");
  const std::string text = describe(object("edgeai.io/v1alpha1", "Dataset"), events, now);
  EXPECT_LT(text.find("Earlier"), text.find("Later")) << text;
  EXPECT_EQ(text.find("OtherGroup"), std::string::npos) << text;
  EXPECT_EQ(text.find("OneBefore"), std::string::npos) << text;
  EXPECT_NE(describe(object("apps/v1", "Dataset"), events, now).find("Events: <none>"),
            std::string::npos);
  EXPECT_NE(
      describe(object("v1", "Node"), {event("Ready", "2024-01-01T00:00:10Z", "v1", "train")}, now)
          .find("Ready"),
      std::string::npos);
}

TEST(Output, UnknownOutputFormatsAreRefused) {
  EXPECT_TRUE(Output::parse("jsonpath={.a}").ok());
  EXPECT_FALSE(Output::parse("xml").ok());
}

}  // namespace
}  // namespace varda::cli
