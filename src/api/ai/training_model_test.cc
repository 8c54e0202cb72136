#include "api/ai/training_model.h"

#include <gtest/gtest.h>

#include "api/period.h"
#include "codec/testing/golden_cases.h"

namespace varda::api {
namespace training_model_test {

codec::testing::GoldenCases& cases() {
  static codec::testing::GoldenCases all(VARDA_TESTDATA "/training_model");
  return all;
}

class TrainingModelValidation : public ::testing::TestWithParam<std::string> {};

TEST_P(TrainingModelValidation, CausesMatchGoldenFile) {
  Json causes = Json::array();
  for (const auto& cause :
       validate(TrainingModel::kind(), cases().at(GetParam()).given["training"])) {
    causes.push_back(Json::object(
        {{"field", cause.field}, {"reason", cause.reason}, {"message", cause.message}}));
  }
  cases().check(GetParam(), Json::object({{"causes", causes}}));
}

INSTANTIATE_TEST_SUITE_P(Case, TrainingModelValidation, ::testing::ValuesIn(cases().names()),
                         [](const auto& test) { return test.param; });

TEST(TrainingModel, TrainerStaysAsWritten) {
  const Json object = cases().at("built_in").given["training"];
  const auto training = TrainingModel::from_json(object);
  ASSERT_TRUE(training.ok()) << training.error().message();
  EXPECT_EQ(training->spec.trainer, object["spec"]["trainer"]);
  EXPECT_EQ(training->to_json()["spec"]["trainer"], object["spec"]["trainer"]);
  EXPECT_EQ(training->spec.deadline_seconds(), 7200);
  EXPECT_EQ(training->spec.checkpoint_seconds(), 60);
  EXPECT_EQ(training->spec.hold_out(), 0.1);
}

TEST(TrainingModel, RunEndsWithEitherConditionTrue) {
  TrainingModelStatus status;
  EXPECT_FALSE(status.ended());
  status.conditions.push_back({"Complete", "False", "", "", 0, ""});
  EXPECT_FALSE(status.ended());
  status.conditions.push_back({"Failed", "True", "", "", 0, ""});
  EXPECT_TRUE(status.ended());
}

TEST(Period, UnitsAddUp) {
  EXPECT_EQ(period_seconds(Json()), 0);
  EXPECT_EQ(period_seconds(Json(90)), 90);
  EXPECT_EQ(period_seconds(Json("90")), 90);
  EXPECT_EQ(period_seconds(Json("1d2h3m4s")), 93784);
}

}  // namespace training_model_test
}  // namespace varda::api
