#include "api/ai/inference_model.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>

#include "codec/yaml.h"
#include "meta/patch.h"

namespace varda::api {
namespace inference_model_test {

namespace fs = std::filesystem;

Json read_yaml(const fs::path& path) {
  std::ifstream in(path);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  auto parsed = codec::parse_yaml(text);
  EXPECT_TRUE(parsed.ok()) << path << ": " << (parsed.ok() ? "" : parsed.error().message());
  return parsed.ok() ? std::move(parsed).value() : Json();
}

std::vector<fs::path> files(const char* folder) {
  std::vector<fs::path> found;
  for (const auto& entry :
       fs::directory_iterator(fs::path(VARDA_TESTDATA) / "inference_model" / folder))
    found.push_back(entry.path());
  EXPECT_FALSE(found.empty());
  return found;
}

Json valid_edge() {
  return read_yaml(fs::path(VARDA_TESTDATA) / "inference_model/valid/edge_from_manifest.yaml");
}

std::string print(const std::vector<meta::StatusCause>& causes) {
  std::string out;
  for (const auto& cause : causes)
    out += cause.field + " | " + cause.reason + " | " + cause.message + "\n";
  return out;
}

TEST(InferenceModelValidation, ValidObjectsHaveNoCauses) {
  for (const fs::path& path : files("valid")) {
    EXPECT_EQ(print(validate(InferenceModel::kind(), read_yaml(path))), "") << path;
  }
}

// Each file changes one valid object by a merge patch, and lists all causes.
TEST(InferenceModelValidation, InvalidObjectsNameEveryFieldAndWhatIsExpected) {
  for (const fs::path& path : files("invalid")) {
    const Json test = read_yaml(path);
    std::string expected;
    for (const Json& cause : test["causes"].as_array()) {
      expected += cause["field"].as_string() + " | " + cause["reason"].as_string() + " | " +
                  cause["message"].as_string() + "\n";
    }
    const Json object = meta::apply_merge_patch(valid_edge(), test["change"]);
    EXPECT_EQ(print(validate(InferenceModel::kind(), object)), expected) << path;
  }
}

TEST(InferenceModelValidation, NativeRulesTellTheCrossFieldPartOnly) {
  for (const NativeRule& rule : native_rules()) {
    if (rule.kind != "InferenceModel") continue;
    EXPECT_EQ(rule.group, "ai.kubeedge.io");
    Json object = valid_edge();
    EXPECT_EQ(print(rule.check(Json(), object)), "");
    object["spec"].set("servingPort", 70000);  // only the schema checks this
    object["spec"].set("replicas", 2);
    EXPECT_EQ(
        print(rule.check(Json(), object)),
        "spec.replicas | FieldValueInvalid | Invalid value: 2: must be 0 or 1 in the edge layer\n");
    return;
  }
  FAIL() << "no rule for InferenceModel";
}

TEST(InferenceModelValidation, HugeInputGivesBoundedCauses) {
  Json object = valid_edge();
  Json& manifest = object["spec"]["manifest"] = Json::array();
  for (int i = 0; i < 64; ++i)
    manifest.push_back(Json::object({{"version", std::string(100'000, '/')}, {"downloadURL", ""}}));
  EXPECT_LE(validate(InferenceModel::kind(), object).size(), 64u);
}

TEST(InferenceModel, JsonThereAndBackKeepsEverythingAlsoWhatItDoesNotName) {
  Json object = valid_edge();
  object["metadata"].set("resourceVersion", "7");
  object["spec"].set("brandNew", Json::object({{"deep", Json::array({1, "two"})}}));
  object["spec"]["manifest"].array_items()[0].set("signature", "abc");
  object["extra"] = true;
  auto model = InferenceModel::from_json(object);
  ASSERT_TRUE(model.ok()) << model.error().message();
  EXPECT_EQ(model->spec.model_name, "facialexpression");
  EXPECT_EQ(model->spec.node_selector.at("kubernetes.io/hostname"), "precision-5820");
  ASSERT_EQ(model->spec.manifest.size(), 2u);
  EXPECT_EQ(model->spec.find_version("4")->download_url,
            "http://files.example/model_emotion_4.tar.gz");
  EXPECT_EQ(model->spec.find_version("5"), nullptr);

  const Json back = model->to_json();
  EXPECT_EQ(back.at("spec/brandNew/deep"), object.at("spec/brandNew/deep"));
  EXPECT_EQ(back["extra"], Json(true));
  EXPECT_EQ(back["spec"]["manifest"].as_array()[0]["signature"], Json("abc"));
  EXPECT_EQ(back.at("metadata/resourceVersion"), Json("7"));
  // A second round trip changes nothing.
  EXPECT_EQ(InferenceModel::from_json(back)->to_json(), back);
}

TEST(InferenceModel, AbsentFieldsTakeTheDefaultsOfTheSchema) {
  auto model = InferenceModel::from_json(
      codec::parse_yaml("{metadata: {name: a}, spec: {modelName: a, deployToLayer: cloud}}")
          .value());
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->spec.serving_port, 8080);
  EXPECT_EQ(model->spec.replicas, 1);
  EXPECT_EQ(model->spec.service.type, "NodePort");
  const Json spec = crd(InferenceModel::kind())["spec"]["versions"].as_array()[0].at(
      "schema/openAPIV3Schema/properties/spec/properties");
  EXPECT_EQ(spec.at("servingPort/default"), Json(8080));
  EXPECT_EQ(spec.at("replicas/default"), Json(1));
  EXPECT_EQ(spec.at("service/properties/type/default"), Json("NodePort"));
  model->spec.serving_port = 0;
  EXPECT_EQ(model->spec.port(), 8080);
}

TEST(InferenceModel, ZeroReplicasAreWritten) {
  auto model = InferenceModel::from_json(valid_edge());
  model->spec.replicas = 0;
  EXPECT_EQ(InferenceModel::from_json(model->to_json())->spec.replicas, 0);
}

TEST(InferenceModel, WrongTypesAndOtherKindsAreRefusedWithTheirPath) {
  Json object = valid_edge();
  object["spec"]["manifest"].array_items()[1].set("version", 4);
  EXPECT_EQ(InferenceModel::from_json(object).error().message(),
            "InferenceModel default/facialexpression: spec.manifest[1].version: must be a string");
  object = valid_edge();
  object.set("kind", "TrainingModel");
  EXPECT_EQ(InferenceModel::from_json(object).error().message(),
            "TrainingModel default/facialexpression: kind must be InferenceModel");
  EXPECT_FALSE(InferenceModel::from_json(Json("text")).ok());
}

}  // namespace inference_model_test
}  // namespace varda::api
