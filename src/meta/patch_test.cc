#include "meta/patch.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "codec/yaml.h"

namespace varda::meta {
namespace {

Json cases(const std::string& name) {
  std::ifstream in(std::string(VARDA_TESTDATA) + "/" + name);
  std::ostringstream text;
  text << in.rdbuf();
  auto json = codec::parse_yaml(text.str());
  CHECK(json.ok() && !json->empty());
  return std::move(*json);
}

TEST(JsonPatch, ResultsMatchTheGoldenCases) {
  const Json all = cases("json_patch.yaml");
  for (const Json& c : all.as_array()) {
    const std::string& name = c["name"].as_string();
    const auto result = apply_json_patch(c["document"], c["patch"]);
    if (const Json* error = c.find("error")) {
      ASSERT_FALSE(result.ok()) << name;
      EXPECT_EQ(result.error().code(), Code::kInvalid) << name;
      EXPECT_TRUE(result.error().message().ends_with(error->as_string()))
          << name << ": " << result.error().message();
    } else {
      ASSERT_TRUE(result.ok()) << name << ": " << result.error().message();
      EXPECT_EQ(*result, c["result"]) << name << ": " << codec::write_json(*result);
    }
  }
}

TEST(JsonPatch, NumberOfOperationsIsBounded) {
  Json patch = Json::array();
  for (int i = 0; i < 4; ++i)
    patch.push_back(codec::parse_json(R"({"op": "add", "path": "/a", "value": 1})").value());
  EXPECT_TRUE(apply_json_patch(Json::object(), patch, 4).ok());
  EXPECT_EQ(apply_json_patch(Json::object(), patch, 3).error().code(), Code::kExhausted);
}

TEST(JsonPatch, WorkOnLargeObjectsIsBounded) {
  Json document = Json::object({{"a", Json::object()}, {"b", Json::object()}});
  for (int i = 0; i < 500; ++i)
    document["a"].object_members().emplace_back("k" + std::to_string(i), "");
  const auto repeated = [](const char* operation, int times) {
    Json patch = Json::array();
    for (int i = 0; i < times; ++i) patch.push_back(codec::parse_json(operation).value());
    return patch;
  };
  const char* add = R"({"op": "add", "path": "/a/new", "value": ""})";
  constexpr std::size_t kOperations = 1'000;
  constexpr std::size_t kWork = 100'000;
  EXPECT_TRUE(apply_json_patch(document, repeated(add, 100), kOperations, kWork).ok());
  EXPECT_EQ(apply_json_patch(document, repeated(add, 300), kOperations, kWork).error().code(),
            Code::kExhausted);
  Json back_and_forth = Json::array();
  for (int i = 0; i < 150; ++i) {
    back_and_forth.push_back(
        codec::parse_json(R"({"op": "move", "from": "/a", "path": "/b/a"})").value());
    back_and_forth.push_back(
        codec::parse_json(R"({"op": "move", "from": "/b/a", "path": "/a"})").value());
  }
  EXPECT_EQ(apply_json_patch(document, back_and_forth, kOperations, kWork).error().code(),
            Code::kExhausted);
}

TEST(JsonPatch, CopiesThatDoubleTheDocumentAreRefused) {
  const Json document = codec::parse_json(R"({"a": ["xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"]})").value();
  const Json copy = codec::parse_json(R"({"op": "copy", "from": "/a", "path": "/a/-"})").value();
  Json patch = Json::array();
  for (int i = 0; i < 100; ++i) patch.push_back(copy);
  EXPECT_EQ(apply_json_patch(document, patch).error().code(), Code::kExhausted);
}

TEST(JsonPatch, NestingIsBounded) {
  Json deep = 1;
  for (int i = 0; i < 150; ++i) deep = Json::object({{"a", deep}});
  std::string below;
  for (int i = 0; i < 150; ++i) below += "/a";
  Json patch = Json::array();
  const auto add = [&](const std::string& path) {
    patch.push_back(Json::object({{"op", "add"}, {"path", path}, {"value", deep}}));
  };
  add(below);
  EXPECT_TRUE(apply_json_patch(deep, patch).ok());
  add(below + below);
  EXPECT_TRUE(apply_json_patch(deep, patch).error().message().ends_with("nested too deeply"));
}

TEST(MergePatch, ResultsMatchTheGoldenCases) {
  const Json all = cases("merge_patch.yaml");
  for (const Json& c : all.as_array()) {
    const std::string& name = c["name"].as_string();
    EXPECT_EQ(apply_merge_patch(c["document"], c["patch"]), c["result"]) << name;
    const Json made = make_merge_patch(c["document"], c["result"]);
    EXPECT_EQ(apply_merge_patch(c["document"], made), c["result"]) << name;
    if (c["back"].as_bool()) {
      EXPECT_EQ(made, c["patch"]) << name;
    }
  }
}

TEST(ThreeWayMerge, ResultsMatchTheGoldenCases) {
  const Json all = cases("three_way.yaml");
  for (const Json& c : all.as_array()) {
    const std::string& name = c["name"].as_string();
    const Json result = three_way_merge(c["last"], c["wanted"], c["live"], core_list_keys);
    EXPECT_EQ(result, c["result"]) << name << ": " << codec::write_json(result);
    // A repeated merge changes nothing, with the old or the new `last`.
    EXPECT_EQ(three_way_merge(c["last"], c["wanted"], result, core_list_keys), result) << name;
    EXPECT_EQ(three_way_merge(c["wanted"], c["wanted"], result, core_list_keys), result) << name;
  }
}

TEST(ThreeWayMerge, CustomListKeysMergeLists) {
  const ListKeys keys = [](std::string_view path) -> std::optional<std::vector<std::string>> {
    if (path == "spec.models") return std::vector<std::string>{"key"};
    if (path == "spec.models.versions") return std::vector<std::string>{"version"};
    return std::nullopt;
  };
  const auto parse = [](const char* text) { return codec::parse_json(text).value(); };
  EXPECT_EQ(
      three_way_merge(
          parse(
              R"({"spec": {"models": [{"key": "a", "versions": [{"version": "1"}]}, {"key": "b"}]}})"),
          parse(R"({"spec": {"models": [{"key": "a", "versions": [{"version": "2"}]}]}})"),
          parse(
              R"({"spec": {"models": [{"key": "a", "versions": [{"version": "1"}, {"version": "x"}]}, {"key": "b"}]}})"),
          keys),
      parse(
          R"({"spec": {"models": [{"key": "a", "versions": [{"version": "x"}, {"version": "2"}]}]}})"));
}

TEST(CoreListKeys, OnlyListMapsHaveKeys) {
  using Keys = std::vector<std::string>;
  EXPECT_EQ(core_list_keys("spec.template.spec.containers"), Keys{"name"});
  EXPECT_EQ(core_list_keys("spec.initContainers.env"), Keys{"name"});
  EXPECT_EQ(core_list_keys("spec.containers.ports"), (Keys{"containerPort", "protocol"}));
  EXPECT_EQ(core_list_keys("spec.ports"), (Keys{"port", "protocol"}));
  EXPECT_EQ(core_list_keys("spec.template.spec.volumes"), Keys{"name"});
  EXPECT_EQ(core_list_keys("status.conditions"), Keys{"type"});
  for (const char* path : {"spec.tolerations", "spec.containers.args", "spec.containers.env.x",
                           "spec.env", "ports", ""}) {
    EXPECT_EQ(core_list_keys(path), std::nullopt) << path;
  }
}

}  // namespace
}  // namespace varda::meta
