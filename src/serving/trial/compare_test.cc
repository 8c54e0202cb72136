// The parts of a trial without models: the file, the comparison and the counts.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serving/trial/best_class.h"
#include "serving/trial/file.h"
#include "serving/trial/live_counts.h"

namespace varda::serving::trial {
namespace compare_test {

using tensor::DType;
using tensor::Named;
using tensor::Tensor;
using ::testing::HasSubstr;

Named reals(const std::string& name, tensor::Shape shape, const std::vector<float>& values) {
  return {name, Tensor::of<float>(DType::kFp32, std::move(shape), values).value()};
}

Named texts(const std::string& name, tensor::Shape shape, const std::vector<std::string>& values) {
  return {name, Tensor::of_strings(std::move(shape), values).value()};
}

bool agree(const Named& a, const Named& b) {
  return trial::agree(std::span(&a, 1), std::span(&b, 1));
}

TEST(TrialFile, ReadsBothModes) {
  EXPECT_EQ(parse_file(R"({"version":"5","mode":"shadow"})").value(),
            (File{"5", Mode::kShadow, 0}));
  EXPECT_EQ(parse_file(R"({"version":"5","mode":"canary","share":1,"more":{}})").value(),
            (File{"5", Mode::kCanary, 1}));
}

TEST(TrialFile, ErrorNamesTheMember) {
  const auto error = [](std::string_view text) { return parse_file(text).error().message(); };
  EXPECT_THAT(error("["), HasSubstr("trial.json"));
  EXPECT_EQ(error("[]"), "trial.json: must be an object");
  EXPECT_EQ(error("{}"), "trial.json: version must be a text");
  EXPECT_EQ(error(R"({"version":"5"})"), "trial.json: mode must be shadow or canary");
  for (const char* share : {"-0.1", "1.5", "\"1\"", "null"})
    EXPECT_EQ(error(R"({"version":"5","mode":"canary","share":)" + std::string(share) + "}"),
              "trial.json: share must be a number from 0 to 1");
}

TEST(BestClass, TakesTheGreatestOfEachRow) {
  const Named scores = reals("y", {2, 3}, {0.1f, 0.7f, 0.2f, 0.5f, 0.25f, 0.25f});
  const auto best = best_classes(std::span(&scores, 1)).value();
  ASSERT_EQ(best.size(), 2u);
  EXPECT_EQ(best[0].name, "1");
  EXPECT_FLOAT_EQ(static_cast<float>(best[0].score), 0.7f);
  EXPECT_EQ(best[1].name, "0");
}

TEST(BestClass, LogitsGetTheirSoftmax) {
  const Named scores = reals("y", {1, 2}, {-1, 3});
  EXPECT_NEAR(best_classes(std::span(&scores, 1)).value()[0].score, 0.982, 0.001);
}

TEST(BestClass, LabelsBestFirstDecide) {
  const std::vector<Named> outputs = {texts("labels", {1, 2}, {"good", "bad"}),
                                      reals("scores", {1, 2}, {0.75f, 0.25f})};
  const auto best = best_classes(outputs).value();
  EXPECT_EQ(best[0].name, "good");
  EXPECT_EQ(best[0].score, 0.75);
}

TEST(BestClass, OtherOutputsHaveNone) {
  const std::vector<Named> boxes = {reals("boxes", {1, 4}, {1, 2, 3, 4}),
                                    reals("scores", {1, 2}, {0.75f, 0.25f})};
  EXPECT_FALSE(best_classes(boxes));
  const Named one = reals("y", {2, 1}, {1, 2});
  EXPECT_FALSE(best_classes(std::span(&one, 1)));
  EXPECT_FALSE(best_classes({}));
}

TEST(BestClass, SenselessValuesGetScoreZero) {
  const float nan = std::nanf("");
  const Named scores = reals("y", {2, 2}, {nan, nan, nan, 3});
  const auto best = best_classes(std::span(&scores, 1)).value();
  EXPECT_EQ(best[0].score, 0);
  EXPECT_EQ(best[1].name, "1");
}

TEST(Agree, ClassesNeedTheSameBest) {
  EXPECT_TRUE(agree(reals("y", {1, 2}, {0.9f, 0.1f}), reals("y", {1, 2}, {0.6f, 0.4f})));
  EXPECT_FALSE(agree(reals("y", {1, 2}, {0.9f, 0.1f}), reals("y", {1, 2}, {0.4f, 0.6f})));
  EXPECT_FALSE(agree(reals("y", {1, 2}, {0.9f, 0.1f}), reals("y", {2, 2}, {1, 0, 1, 0})));
}

TEST(Agree, OtherOutputsNeedNearValues) {
  EXPECT_TRUE(agree(reals("y", {2, 1}, {100, 0}), reals("y", {2, 1}, {100.9f, 0.0009f})));
  EXPECT_FALSE(agree(reals("y", {2, 1}, {100, 0}), reals("y", {2, 1}, {102, 0})));
  EXPECT_FALSE(agree(reals("y", {1, 1}, {1}), reals("z", {1, 1}, {1})));
  EXPECT_FALSE(agree(texts("t", {1}, {"a"}), texts("t", {1}, {"b"})));
  EXPECT_TRUE(agree(texts("t", {1}, {"a"}), texts("t", {1}, {"a"})));
}

TEST(LiveCounts, MedianIsWithinFivePercent) {
  LiveCounts counts;
  EXPECT_FALSE(counts.median_microseconds());
  for (int i = 0; i < 10; ++i) counts.answered(std::chrono::microseconds(200), {});
  for (int i = 0; i < 9; ++i) counts.answered(std::chrono::seconds(100), {});
  EXPECT_NEAR(counts.median_microseconds().value(), 200, 10);
  for (int i = 0; i < 9; ++i) counts.answered(Duration(0), {});
  EXPECT_NEAR(counts.median_microseconds().value(), 200, 10);
}

TEST(LiveCounts, ScoresFallIntoTwentyBuckets) {
  LiveCounts counts;
  for (const float score : {0.5f, 0.549f, 1.0f}) {
    const Named output = reals("probabilities", {1, 2}, {score, 0});
    counts.answered(std::chrono::microseconds(1), std::span(&output, 1));
  }
  counts.failed();
  const codec::Json json = counts.json();
  EXPECT_EQ(json["answers"].as_integer(), 3);
  EXPECT_EQ(json["failures"].as_integer(), 1);
  ASSERT_EQ(json["scores"].size(), LiveCounts::kScores);
  EXPECT_EQ(json.at("scores/10").as_integer(), 2);
  EXPECT_EQ(json.at("scores/19").as_integer(), 1);
}

TEST(LiveCounts, TimesAreRfc3339) {
  EXPECT_EQ(time_text(WallTime(std::chrono::seconds(1714521600))), "2024-05-01T00:00:00Z");
}

}  // namespace compare_test
}  // namespace varda::serving::trial
