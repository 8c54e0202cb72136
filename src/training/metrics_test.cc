#include "training/metrics.h"

#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <limits>
#include <string>

#include "base/rng.h"
#include "codec/json.h"

namespace varda::training {
namespace {

namespace metrics_test {

using codec::Json;
using samples::Task;
using train::Activation;
using train::Loss;

Metrics::Options options_of(const Json& one) {
  const std::string task = one["task"].as_string(), loss = one["loss"].as_string(),
                    activation = one["activation"].as_string();
  return {.task = task == "classification" ? Task::kClassification
                  : task == "multilabel"   ? Task::kMultiLabel
                                           : Task::kRegression,
          .outputs = one.at("rows/0").size(),
          .loss = loss == "crossEntropy"         ? Loss::kCrossEntropy
                  : loss == "binaryCrossEntropy" ? Loss::kBinaryCrossEntropy
                  : loss == "mse"                ? Loss::kMse
                                                 : Loss::kHuber,
          .activation = activation == "scores"          ? Activation::kScores
                        : activation == "probabilities" ? Activation::kProbabilities
                                                        : Activation::kLogProbabilities,
          .huber_delta = one["delta"].as_double(1)};
}

std::vector<float> floats(const Json& json) {
  std::vector<float> out;
  for (const Json& value : json.as_array()) out.push_back(static_cast<float>(value.as_double()));
  return out;
}

TEST(Metrics, EqualThoseOfScikitLearn) {
  std::ifstream file(VARDA_TESTDATA "/metrics.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Json cases = codec::parse_json(text).value();
  ASSERT_EQ(cases.size(), 11u);
  for (const Json& one : cases.as_array()) {
    const std::string name = one["name"].as_string();
    Metrics metrics(options_of(one));
    double loss = 0;
    for (std::size_t i = 0; i < one["rows"].size(); ++i) {
      const std::vector<float> row = floats(one["rows"].as_array()[i]);
      if (const Json* labels = one.find("labels"))
        loss += metrics.add(row, labels->as_array()[i].as_integer());
      else
        loss += metrics.add(row, floats(one["targets"].as_array()[i]));
    }
    const auto values = metrics.values();
    EXPECT_NEAR(loss / static_cast<double>(metrics.samples()), values.at("loss"), 1e-12) << name;
    EXPECT_EQ(values.size(), one["values"].size()) << name;
    for (const auto& [metric, expected] : one["values"].as_object()) {
      ASSERT_TRUE(values.contains(metric)) << name << ": " << metric;
      EXPECT_NEAR(values.at(metric), expected.as_double(), 2e-6) << name << ": " << metric;
    }
    const auto& confusion = metrics.confusion();
    ASSERT_EQ(confusion.size(), one["confusion"].size()) << name;
    for (std::size_t i = 0; i < confusion.size(); ++i)
      for (std::size_t j = 0; j < confusion.size(); ++j)
        EXPECT_EQ(confusion[i][j], static_cast<std::uint64_t>(
                                       one["confusion"].as_array()[i].as_array()[j].as_integer()))
            << name;
  }
}

TEST(Metrics, ThinnedScoresGiveAboutTheSameArea) {
  Metrics all({.outputs = 2}), thinned({.outputs = 2, .auc_scores_max = 1000});
  const auto rng = seeded_rng(4);
  for (int i = 0; i < 20'000; ++i) {
    const std::int64_t label = i >= 10'000 ? 1 : 0;  // sorted by class, as a folder a class is
    const float row[] = {0, static_cast<float>(rng->unit() + 0.3 * static_cast<double>(label))};
    all.add(row, label);
    thinned.add(row, label);
  }
  EXPECT_NEAR(all.values().at("auc"), 1 - 0.7 * 0.7 / 2, 0.01);
  EXPECT_NEAR(thinned.values().at("auc"), all.values().at("auc"), 0.04);
  EXPECT_EQ(thinned.values().at("accuracy"), all.values().at("accuracy"));
}

TEST(Metrics, AreaNeedsBothKinds) {
  Metrics metrics({.outputs = 2});
  const float row[] = {0.2f, 0.8f};
  metrics.add(row, 1);
  metrics.add(row, 1);
  EXPECT_FALSE(metrics.values().contains("auc"));
  EXPECT_EQ(metrics.values().at("accuracy"), 1);
}

TEST(Metrics, ManyClassesHaveNoConfusionMatrix) {
  EXPECT_EQ(Metrics({.outputs = 200}).confusion().size(), 200u);
  Metrics many({.outputs = 201});
  EXPECT_TRUE(many.confusion().empty());
  std::vector<float> row(201);
  row[200] = 1;
  many.add(row, 200);
  EXPECT_EQ(many.values().at("f1"), 1);
}

TEST(Metrics, RoundedProbabilityOfZeroHasAFiniteLoss) {
  Metrics metrics({.outputs = 2, .activation = Activation::kProbabilities});
  const float row[] = {1, 0};
  EXPECT_NEAR(metrics.add(row, 1), 87.3, 0.1);
}

TEST(Metrics, ValueThatIsNotANumberMakesTheLossNotANumber) {
  Metrics metrics({.outputs = 2});
  const float row[] = {1, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_TRUE(std::isnan(metrics.add(row, 0)));
  EXPECT_TRUE(std::isnan(metrics.values().at("loss")));
}

TEST(Metrics, NoSamplesGiveNoValues) { EXPECT_TRUE(Metrics({.outputs = 2}).values().empty()); }

}  // namespace metrics_test
}  // namespace
}  // namespace varda::training
