#include "api/ai/inference_model.h"

#include <gtest/gtest.h>
#include <set>

#include "codec/testing/golden_cases.h"
#include "codec/yaml.h"
#include "meta/patch.h"

namespace varda::api {
namespace inference_model_test {

codec::testing::GoldenCases& cases() {
  static codec::testing::GoldenCases all(VARDA_TESTDATA "/inference_model");
  return all;
}

Json valid_edge() { return cases().at("edge_from_manifest").given["model"]; }

std::string print(const std::vector<meta::StatusCause>& causes) {
  std::string out;
  for (const auto& cause : causes)
    out += cause.field + " | " + cause.reason + " | " + cause.message + "\n";
  return out;
}

class InferenceModelValidation : public ::testing::TestWithParam<std::string> {};

// A valid object has no causes. Others name every field and what is expected.
TEST_P(InferenceModelValidation, CausesMatchGoldenFile) {
  Json causes = Json::array();
  for (const auto& cause :
       validate(InferenceModel::kind(), cases().at(GetParam()).given["model"])) {
    causes.push_back(Json::object(
        {{"field", cause.field}, {"reason", cause.reason}, {"message", cause.message}}));
  }
  cases().check(GetParam(), Json::object({{"causes", causes}}));
}

INSTANTIATE_TEST_SUITE_P(Case, InferenceModelValidation, ::testing::ValuesIn(cases().names()),
                         [](const auto& test) { return test.param; });

TEST(InferenceModelRules, NativeRulesCheckCrossFieldRulesOnly) {
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

TEST(InferenceModelRules, HugeInputGivesBoundedCauses) {
  Json object = valid_edge();
  Json& manifest = object["spec"]["manifest"] = Json::array();
  for (int i = 0; i < 64; ++i)
    manifest.push_back(Json::object({{"version", std::string(100'000, '/')}, {"downloadURL", ""}}));
  EXPECT_LE(validate(InferenceModel::kind(), object).size(), 64u);
}

TEST(InferenceModel, JsonRoundTripKeepsUnknownMembers) {
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
