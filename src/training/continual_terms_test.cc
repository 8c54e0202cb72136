// The formulas against forgetting, against vectors from numpy (testdata/make_continual.py).
#include "training/internal/continual_terms.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "codec/json.h"
#include "os/file_system.h"

namespace varda::training {
namespace {

namespace continual_terms_test {

using codec::Json;

const Json& vectors() {
  static const Json all = [] {
    return codec::parse_json(
               os::read_file(os::real_file_system(), VARDA_TESTDATA "/continual.json").value())
        .value();
  }();
  return all;
}

std::vector<float> floats(const Json& list) {
  std::vector<float> out;
  for (const Json& one : list.as_array()) out.push_back(static_cast<float>(one.as_double()));
  return out;
}

void expect_near(const std::vector<float>& found, const Json& wanted, double bound = 1e-5) {
  const std::vector<float> expected = floats(wanted);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], bound) << i;
}

TEST(ContinualTerms, ElasticTermIsThatOfNumpy) {
  const Json& one = vectors()["ewc"];
  std::vector<float> gradient = floats(one["gradient"]);
  add_elastic_term(gradient, floats(one["weight"]), floats(one["start"]), floats(one["fisher"]),
                   one["lambda"].as_double(), 1e9);
  expect_near(gradient, one["expected"]);
  std::vector<float> limited = {0, 0};
  add_elastic_term(limited, std::vector<float>{2, 2}, std::vector<float>{1, 1},
                   std::vector<float>{0.5f, 1e6f}, 4, 20);
  EXPECT_EQ(limited, (std::vector<float>{2, 20}));
}

TEST(ContinualTerms, FisherIsTheMeanOfSquares) {
  const Json& one = vectors()["fisher"];
  const std::size_t sizes[] = {one["expected"].size()};
  FisherSum sum(sizes);
  for (const Json& gradient : one["gradients"].as_array()) sum.add({floats(gradient)});
  expect_near(sum.mean().at(0), one["expected"]);
}

TEST(ContinualTerms, ProjectionIsThatOfNumpy) {
  int changed = 0;
  for (const Json& one : vectors()["agem"].as_array()) {
    Values gradient = {floats(one["gradient"])};
    const Values reference = {floats(one["reference"])};
    changed += project(gradient, reference) ? 1 : 0;
    expect_near(gradient[0], one["expected"]);
    double product = 0;
    for (std::size_t i = 0; i < reference[0].size(); ++i)
      product += double{gradient[0][i]} * double{reference[0][i]};
    EXPECT_GT(product, -1e-5) << "the update must not raise the loss on the memory";
  }
  EXPECT_EQ(changed, 1);
}

TEST(ContinualTerms, SoftTargetsAreThoseOfNumpyForEachMeaningOfTheOutput) {
  for (const Json& one : vectors()["soften"].as_array()) {
    const std::string name = one["activation"].as_string();
    const auto activation = name == "scores"          ? train::Activation::kScores
                            : name == "probabilities" ? train::Activation::kProbabilities
                                                      : train::Activation::kLogProbabilities;
    expect_near(soften(floats(one["row"]), activation, one["temperature"].as_double()),
                one["expected"]);
  }
}

TEST(ContinualTerms, DrawnClassesFollowTheProbabilities) {
  const std::vector<float> row = {0.2f, 0.5f, 0.3f};
  const auto draw = [&](double unit) {
    return draw_class(row, train::Activation::kProbabilities, unit);
  };
  EXPECT_EQ(draw(0), 0);
  EXPECT_EQ(draw(0.19), 0);
  EXPECT_EQ(draw(0.21), 1);
  EXPECT_EQ(draw(0.69), 1);
  EXPECT_EQ(draw(0.71), 2);
  EXPECT_EQ(draw(0.9999999999), 2);
}

}  // namespace continual_terms_test

}  // namespace
}  // namespace varda::training
