// The built-in kinds as files: testdata/kinds/*.json holds results of creating, updating and
// listing objects. UPDATE_GOLDEN=1 rewrites the expectations.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "apiserver/internal/openapi.h"
#include "apiserver/kinds/cause.h"
#include "apiserver/kinds/core.h"
#include "apiserver/kinds/crd.h"
#include "apiserver/kinds/types.h"
#include "base/testing/golden.h"
#include "meta/object.h"

namespace varda::apiserver {
namespace kinds_test {

const KindPtr& kind_named(std::string_view kind) {
  static const std::vector<KindPtr> kinds = core_kinds();
  const auto found = std::find_if(kinds.begin(), kinds.end(),
                                  [&](const KindPtr& k) { return k->resource().kind == kind; });
  EXPECT_NE(found, kinds.end()) << kind;
  return *found;
}

Json texts(const std::vector<std::string>& list) {
  Json out = Json::array();
  for (const std::string& text : list) out.push_back(text);
  return out;
}

Json lines(const std::vector<StatusCause>& causes) {
  std::vector<std::string> all;
  for (const StatusCause& cause : causes)
    all.push_back(cause.reason + " " + cause.field + ": " + cause.message);
  std::sort(all.begin(), all.end());
  return texts(all);
}

// The result of creating the object and then changing it to `update`.
Json outcome(const Json& test) {
  const KindPtr& kind = kind_named(test.at("object/kind").as_string());
  Json result = Json::object();
  const auto fail = [&](const char* what, Json why) {
    result.set(what, std::move(why));
    return result;
  };
  Json object = test["object"];
  if (Status decoded = kind->decode(object); !decoded.ok())
    return fail("refused", decoded.error().message());
  if (auto unknown = kind->prune(object); !unknown.empty()) result.set("unknown", texts(unknown));
  kind->prepare_create(object);
  kind->apply_defaults(object);
  if (auto causes = kind->validate_create(object); !causes.empty())
    return fail("causes", lines(causes));
  const Json* update = test.find("update");
  if (update != nullptr) {
    const Json old = object;
    object = *update;
    const Part part = test["part"].as_string() == "status" ? Part::kStatus : Part::kWhole;
    if (Status decoded = kind->decode(object); !decoded.ok())
      return fail("refused", decoded.error().message());
    kind->prune(object);
    kind->apply_defaults(object);
    kind->prepare_update(object, old, part);
    if (auto causes = kind->validate_update(object, old, part); !causes.empty())
      return fail("causes", lines(causes));
  }
  const WallTime now = *meta::parse_time("2024-01-01T00:10:00Z");
  Json cells = Json::array();
  for (Json& cell : kind->cells(object, now)) cells.push_back(std::move(cell));
  EXPECT_EQ(cells.size(), kind->columns().size());
  result.set("cells", std::move(cells));
  result.set("object", std::move(object));
  return result;
}

TEST(CoreKinds, OutcomesMatchGoldenFiles) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(VARDA_TESTDATA) / "kinds"))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    auto file = codec::parse_json(text.str());
    ASSERT_TRUE(file.ok()) << path << file.error().message();
    bool differs = false;
    for (Json& test : (*file)["cases"].array_items()) {
      const Json got = outcome(test);
      EXPECT_EQ(got, test["expect"])
          << path << ": " << test["name"].as_string() << "\n got " << codec::write_json(got);
      differs = differs || got != test["expect"];
      test.set("expect", got);
    }
    if (updating_goldens() && differs)
      rewrite_golden(path, codec::write_json_pretty(*file, 1) + "\n");
  }
}

// The result of a write is a fixed point: sending it again changes nothing.
TEST(CoreKinds, RewritingStoredObjectChangesNothing) {
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(VARDA_TESTDATA) / "kinds")) {
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    auto file = codec::parse_json(text.str());
    ASSERT_TRUE(file.ok());
    for (const Json& test : std::as_const(*file)["cases"].as_array()) {
      const Json& stored = test.at("expect/object");
      if (stored.is_null()) continue;
      const KindPtr& kind = kind_named(stored["kind"].as_string());
      Json again = stored;
      ASSERT_TRUE(kind->decode(again).ok());
      EXPECT_TRUE(kind->prune(again).empty());
      kind->apply_defaults(again);
      kind->prepare_update(again, stored, Part::kWhole);
      EXPECT_EQ(again, stored) << test["name"].as_string() << "\n" << codec::write_json(again);
    }
  }
}

TEST(Types, MergeKeysFollowThePath) {
  const Type& deployment = Types::all().get("Deployment");
  EXPECT_EQ(list_merge(deployment, "spec.template.spec.containers")->key, "name");
  EXPECT_EQ(list_merge(deployment, "spec.template.spec.containers.ports")->key, "containerPort");
  EXPECT_TRUE(list_merge(deployment, "spec.strategy")->retain_keys);
  EXPECT_EQ(list_merge(deployment, "metadata.ownerReferences")->key, "uid");
  EXPECT_FALSE(list_merge(deployment, "spec.template.spec.tolerations").has_value());
  EXPECT_FALSE(list_merge(deployment, "spec.nothing.here").has_value());
}

Json crd_of(const char* text) { return *codec::parse_json(text); }

TEST(CustomKinds, VersionsHaveKubernetesOrderOfPreference) {
  const std::vector<std::string> wanted = {"v10",      "v2",       "v1",     "v11beta2", "v2beta10",
                                           "v2beta2",  "v3alpha1", "foo1",   "v",        "v-1",
                                           "v1gamma1", "v1x",      "v2beta", "version"};
  std::vector<std::string> names = wanted;
  std::sort(names.begin(), names.end());
  std::sort(names.begin(), names.end(), preferred_version);
  EXPECT_EQ(names, wanted);
}

TEST(CustomKinds, NativeRulesApplyToObjectsButNotStatusUpdates) {
  const Json crd = crd_of(
      R"({"metadata": {"name": "things.x.io"}, "spec": {"group": "x.io", "scope": "Namespaced",
    "names": {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"},
    "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
      "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "integer"}}}}}}}]}})");
  NativeRules rules;
  rules[{"x.io", "Thing"}] = [](const Json& old, const Json& object) -> std::vector<StatusCause> {
    if (!old.is_null() && !(old.at("spec/a") == object.at("spec/a")))
      return {invalid("spec.a", object.at("spec/a"), "is immutable")};
    return {};
  };
  auto kinds = kinds_from_crd(crd, rules);
  ASSERT_TRUE(kinds.ok());
  ASSERT_EQ(kinds->size(), 1u);
  const Kind& kind = *kinds->front();
  EXPECT_TRUE(kind.info().status);
  const Json one = *codec::parse_json(R"({"spec": {"a": 1}})");
  const Json two = *codec::parse_json(R"({"spec": {"a": 2}})");
  EXPECT_TRUE(kind.validate_create(one).empty());
  EXPECT_EQ(kind.validate_update(two, one, Part::kWhole).size(), 1u);
  EXPECT_TRUE(kind.validate_update(two, one, Part::kStatus).empty());
}

TEST(CustomKinds, StatusWriteWithoutStatusRemovesIt) {
  const Json crd =
      crd_of(R"({"metadata": {"name": "things.x.io"}, "spec": {"group": "x.io", "scope": "Cluster",
    "names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
      "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})");
  const Json old = *codec::parse_json(
      R"({"metadata": {"name": "a", "generation": 3}, "spec": {"a": 1}, "status": {"b": 1}})");
  Json object = *codec::parse_json(R"({"metadata": {"name": "a"}, "spec": {"a": 2}})");
  kinds_from_crd(crd)->front()->prepare_update(object, old, Part::kStatus);
  EXPECT_EQ(object, *codec::parse_json(
                        R"({"metadata": {"name": "a", "generation": 3}, "spec": {"a": 1}})"));
}

TEST(CustomKinds, VersionsAreServedNewestFirstAndStoredInOne) {
  const Json crd =
      crd_of(R"({"metadata": {"name": "things.x.io"}, "spec": {"group": "x.io", "scope": "Cluster",
    "names": {"plural": "things", "kind": "Thing"}, "versions": [
      {"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"b": {"type": "string", "default": "x"}}}}},
      {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "string"}}}}},
      {"name": "v2", "served": false, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})");
  auto kinds = kinds_from_crd(crd);
  ASSERT_TRUE(kinds.ok());
  ASSERT_EQ(kinds->size(), 2u);
  EXPECT_EQ((*kinds)[0]->resource().version, "v1");
  EXPECT_EQ((*kinds)[1]->info().served_versions,
            (std::vector<std::string>{"x.io/v1", "x.io/v1beta1"}));
  Json object = Json::object({{"a", "1"}, {"b", "2"}});
  (*kinds)[1]->apply_defaults(object);
  EXPECT_EQ(object, Json::object({{"a", "1"}})) << "what the stored version lacks is not kept";
}

TEST(CustomKinds, NamesOfAnotherDefinitionAreRefused) {
  const Json other = crd_of(R"({"metadata": {"name": "things.x.io"}, "spec": {"group": "x.io"},
    "status": {"acceptedNames": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}}})");
  const Json crd = crd_of(R"({"metadata": {"name": "others.x.io"}, "spec": {"group": "x.io",
    "names": {"plural": "others", "singular": "other", "kind": "Thing", "listKind": "OtherList"}, "versions": []}})");
  Json refused = refused_crd_status(crd, other);
  EXPECT_EQ(refused.at("conditions/0/reason"), Json("KindConflict"));
  Json unserved = crd;
  unserved.set("status", refused);
  EXPECT_TRUE(kinds_from_crd(unserved)->empty());
  EXPECT_TRUE(refused_crd_status(other, other).is_null());
}

TEST(OpenApi, EveryReferenceOfADocumentResolves) {
  for (const auto& [group, version] : {std::pair<std::string, std::string>{"", "v1"},
                                       {"apps", "v1"},
                                       {"apiextensions.k8s.io", "v1"}}) {
    const Json document = openapi_v3(group, version, core_kinds());
    const Json& schemas = document.at("components/schemas");
    const std::string text = codec::write_json(document);
    constexpr std::string_view kReference = "#/components/schemas/";
    std::size_t count = 0;
    for (auto at = text.find(kReference); at != std::string::npos;
         at = text.find(kReference, at + 1), ++count) {
      const std::string name =
          text.substr(at + kReference.size(), text.find('"', at) - at - kReference.size());
      EXPECT_TRUE(schemas.contains(name)) << name;
    }
    EXPECT_GT(count, 5u);
    EXPECT_NE(text.find("fieldValidation"), std::string::npos);
  }
}

}  // namespace kinds_test
}  // namespace varda::apiserver
