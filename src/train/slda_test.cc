// The streaming last layer, against vectors from numpy (testdata/make_slda.py).
#include "train/slda.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "codec/json.h"
#include "onnx/metadata.h"
#include "onnx/model.h"
#include "train/last_layer.h"
#include "train/testing/model_builder.h"

namespace varda::train {
namespace {

namespace slda_test {

using codec::Json;
using tensor::DType;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> floats(const Json& list) {
  std::vector<float> out;
  for (const Json& one : list.as_array()) out.push_back(static_cast<float>(one.as_double()));
  return out;
}

Json vectors() {
  std::ifstream file(VARDA_TESTDATA "/slda.json");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return codec::parse_json(text).value();
}

TEST(StreamingLda, LayerIsThatOfNumpyAlsoAfterALateClass) {
  const Json all = vectors();
  StreamingLda lda(static_cast<std::size_t>(all["features"].as_integer()));
  std::size_t step = 0;
  for (std::size_t i = 0; i < all["y"].size(); ++i) {
    ASSERT_TRUE(
        lda.update(floats(all["x"].as_array()[i]), all["y"].as_array()[i].as_integer()).ok());
    if (step == all["steps"].size()) break;
    const Json& wanted = all["steps"].as_array()[step];
    if (static_cast<std::int64_t>(lda.samples()) != wanted["samples"].as_integer()) continue;
    ++step;
    const auto layer = lda.layer(all["shrinkage"].as_double(), 3);
    ASSERT_TRUE(layer.ok()) << layer.error();
    const auto weights = floats(wanted["weights"]), bias = floats(wanted["bias"]);
    for (std::size_t k = 0; k < weights.size(); ++k)
      EXPECT_NEAR(layer->weights[k], weights[k], 1e-4 * (1 + std::abs(weights[k]))) << step;
    for (std::size_t k = 0; k < bias.size(); ++k)
      EXPECT_NEAR(layer->bias[k], bias[k], 1e-4 * (1 + std::abs(bias[k]))) << step;
  }
  EXPECT_EQ(step, all["steps"].size());
}

TEST(StreamingLda, StateReadsBackAndContinuesWithTheSameBytes) {
  const Json all = vectors();
  StreamingLda whole(4), part(4);
  std::optional<StreamingLda> resumed;
  for (std::size_t i = 0; i < all["y"].size(); ++i) {
    const auto x = floats(all["x"].as_array()[i]);
    const std::int64_t y = all["y"].as_array()[i].as_integer();
    ASSERT_TRUE(whole.update(x, y).ok());
    if (i < 6) {
      ASSERT_TRUE(part.update(x, y).ok());
      continue;
    }
    if (!resumed) {
      auto read = StreamingLda::decode(part.encode());
      ASSERT_TRUE(read.ok()) << read.error();
      resumed = std::move(*read);
    }
    ASSERT_TRUE(resumed->update(x, y).ok());
  }
  EXPECT_EQ(resumed->encode(), whole.encode());
}

TEST(StreamingLda, DamagedStateIsRefused) {
  StreamingLda lda(2);
  ASSERT_TRUE(lda.update(std::vector<float>{1, 2}, 1).ok());
  const std::string bytes = lda.encode();
  for (std::size_t cut = 0; cut < bytes.size(); ++cut)
    EXPECT_FALSE(StreamingLda::decode(std::string_view(bytes).substr(0, cut)).ok()) << cut;
  std::string wrong = bytes;
  wrong[24] = 9;  // the number of samples
  EXPECT_FALSE(StreamingLda::decode(wrong).ok());
}

TEST(StreamingLda, SampleThatDoesNotFitChangesNothing) {
  StreamingLda lda(2);
  ASSERT_TRUE(lda.update(std::vector<float>{1, 2}, 0).ok());
  const std::string before = lda.encode();
  EXPECT_FALSE(lda.update(std::vector<float>{1}, 0).ok());
  EXPECT_FALSE(lda.update(std::vector<float>{1, 2}, -1).ok());
  EXPECT_FALSE(lda.update(std::vector<float>{1, 2}, 1'000'000).ok());
  EXPECT_FALSE(lda.update(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN()}, 0).ok());
  EXPECT_EQ(lda.encode(), before);
}

TEST(StreamingLda, ClassWithoutSamplesIsNeverTheAnswer) {
  StreamingLda lda(2);
  const auto rng = seeded_rng(4);
  for (int i = 0; i < 100; ++i) {
    const int label = i % 2 == 0 ? 0 : 3;
    ASSERT_TRUE(lda.update(std::vector<float>{static_cast<float>(label + rng->unit()),
                                              static_cast<float>(rng->unit())},
                           label)
                    .ok());
  }
  const auto layer = lda.layer(1e-4, 5);
  ASSERT_TRUE(layer.ok());
  for (const int label : {0, 3}) {
    std::vector<double> scores;
    for (std::size_t k = 0; k < 5; ++k)
      scores.push_back((label + 0.5) * layer->weights[k] + 0.5 * layer->weights[5 + k] +
                       layer->bias[k]);
    EXPECT_EQ(std::max_element(scores.begin(), scores.end()) - scores.begin(), label);
  }
}

std::string network(bool transposed, bool separate_bias) {
  const auto values = [](tensor::Shape shape) {
    Tensor out = Tensor::allocate(DType::kFp32, std::move(shape)).value();
    float next = 0.25f;
    for (float& one : out.mutable_values<float>()) one = next += 0.5f;
    return out;
  };
  testing::ModelBuilder builder;
  builder.input("x", DType::kFp32, {-1, 2})
      .initializer("w0", values({2, 3}))
      .initializer("w1", values(transposed ? tensor::Shape{2, 3} : tensor::Shape{3, 2}))
      .initializer("b1", values({2}))
      .node({.op_type = "MatMul", .inputs = {"x", "w0"}, .outputs = {"h"}});
  if (separate_bias) {
    builder.node({.op_type = "MatMul", .inputs = {"h", "w1"}, .outputs = {"p"}})
        .node({.op_type = "Add", .inputs = {"p", "b1"}, .outputs = {"scores"}});
  } else {
    builder.node({.op_type = "Gemm",
                  .inputs = {"h", "w1", "b1"},
                  .outputs = {"scores"},
                  .attributes = {{"transB", std::int64_t{transposed ? 1 : 0}}}});
  }
  return builder.node({.op_type = "Softmax", .inputs = {"scores"}, .outputs = {"y"}})
      .output("y")
      .bytes();
}

TEST(LastLayer, ValuesAreWrittenInTheLayoutOfTheFile) {
  const LinearLayer layer{.inputs = 3, .classes = 2, .weights = {1, 2, 3, 4, 5, 6}, .bias = {7, 8}};
  for (const bool transposed : {false, true})
    for (const bool separate : {false, true}) {
      if (transposed && separate) continue;
      const auto file = replace_last_layer(network(transposed, separate), layer);
      ASSERT_TRUE(file.ok()) << file.error();
      const auto model = onnx::parse(*file);
      const Tensor weights = model->graph.initializer("w1")->value().value();
      const Tensor bias = model->graph.initializer("b1")->value().value();
      if (transposed)
        EXPECT_THAT(weights.values<float>(), ElementsAre(1, 3, 5, 2, 4, 6));
      else
        EXPECT_THAT(weights.values<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
      EXPECT_THAT(bias.values<float>(), ElementsAre(7, 8));
    }
}

TEST(LastLayer, NewClassesGrowTheLayer) {
  const LinearLayer layer{
      .inputs = 3, .classes = 3, .weights = {1, 2, 3, 4, 5, 6, 7, 8, 9}, .bias = {1, 2, 3}};
  const auto file = replace_last_layer(network(false, false), layer);
  ASSERT_TRUE(file.ok()) << file.error();
  const auto model = onnx::parse(*file);
  EXPECT_THAT(model->graph.initializer("w1")->dims, ElementsAre(3, 3));
  EXPECT_THAT(model->graph.initializer("b1")->dims, ElementsAre(3));
}

TEST(LastLayer, OtherLayersAreRefusedByName) {
  const auto file = testing::ModelBuilder()
                        .input("x", DType::kFp32, {-1, 2})
                        .node({.op_type = "Relu", .inputs = {"x"}, .outputs = {"y"}, .name = "r"})
                        .output("y")
                        .bytes();
  const auto layer = find_last_layer(*onnx::parse(file));
  ASSERT_FALSE(layer.ok());
  EXPECT_EQ(layer.error().code(), Code::kUnsupported);
  EXPECT_THAT(layer.error().message(), HasSubstr("\"r\" (Relu)"));
}

TEST(Metadata, EntriesAreReplacedAndOthersStay) {
  auto model = onnx::parse(network(false, false)).value();
  EXPECT_FALSE(onnx::metadata(model, "a"));
  onnx::set_metadata(model, "a", "1");
  onnx::set_metadata(model, "b", "2");
  onnx::set_metadata(model, "a", "3");
  const auto again = onnx::parse(onnx::serialize(model)).value();
  EXPECT_EQ(onnx::metadata(again, "a"), "3");
  EXPECT_EQ(onnx::metadata(again, "b"), "2");
  EXPECT_FALSE(onnx::metadata(again, "c"));
}

}  // namespace slda_test

}  // namespace
}  // namespace varda::train
