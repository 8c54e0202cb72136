// Networks against losses, gradients and optimizer steps of another framework.
//
// testdata/make_vectors.py computed the vectors in FP64 with PyTorch. Here the same networks are
// built of ONNX operators and run in FP32.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <numbers>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "codec/json.h"
#include "infer/engine.h"
#include "onnx/model.h"
#include "train/gradient_graph.h"
#include "train/optimizer.h"
#include "train/testing/model_builder.h"
#include "train/trace.h"

namespace varda::train {
namespace {

namespace vectors_test {

using codec::Json;
using onnx::Node;
using tensor::DType;
using tensor::Named;
using tensor::Shape;
using tensor::Tensor;
using Attributes = std::vector<onnx::Attribute>;
using Integers = std::vector<std::int64_t>;
using Names = std::vector<std::string>;

infer::Engine& engine() {
  static infer::Engines all({VARDA_ENGINES});
  return *all.get("onnxruntime").value();
}

const Json& vectors() {
  static const Json all = [] {
    std::ifstream file(VARDA_TESTDATA "/vectors.json");
    return codec::parse_json(std::string(std::istreambuf_iterator<char>(file), {})).value();
  }();
  return all;
}

Shape shape_of(const Json& tensor) {
  Shape out;
  for (const Json& size : tensor["shape"].as_array()) out.push_back(size.as_integer());
  return out;
}

template <typename T>
std::vector<T> values_of(const Json& tensor) {
  std::vector<T> out;
  for (const Json& value : tensor["values"].as_array())
    out.push_back(static_cast<T>(value.as_double()));
  return out;
}

template <typename T = float>
Tensor tensor_of(const Json& tensor, DType dtype = DType::kFp32) {
  return Tensor::of<T>(dtype, shape_of(tensor), values_of<T>(tensor)).value();
}

/// The largest error is 1e-5 of the largest value.
void expect_near(std::span<const float> values, const Json& expected, const std::string& what) {
  const auto wanted = values_of<double>(expected);
  ASSERT_EQ(values.size(), wanted.size()) << what;
  double scale = 1e-6;
  for (const double value : wanted) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(static_cast<double>(values[i]), wanted[i], 1e-5 * scale) << what << "[" << i << "]";
}

/// A network that reads "x". The file of vectors has the weights.
struct Net {
  std::string name;
  Loss loss = Loss::kCrossEntropy;
  DType input = DType::kFp32;
  Names freeze = {};
  std::vector<Node> nodes = {};
  std::vector<Named> constants = {};
  std::string last = "x";

  std::string add(std::string op, Names inputs, Attributes attributes = {}) {
    const std::string output = op + std::to_string(nodes.size());
    nodes.push_back({.op_type = std::move(op),
                     .inputs = std::move(inputs),
                     .outputs = {output},
                     .attributes = std::move(attributes)});
    return output;
  }
  /// The operator reads the last output first.
  Net& then(std::string op, Names others = {}, Attributes attributes = {}) {
    others.insert(others.begin(), last);
    last = add(std::move(op), std::move(others), std::move(attributes));
    return *this;
  }
  std::string constant(const Tensor& value) {
    constants.push_back({"c" + std::to_string(constants.size()), value});
    return constants.back().name;
  }
  std::string number(float value) {
    return constant(Tensor::of<float>(DType::kFp32, {}, {{value}}).value());
  }
  std::string integers(const Integers& values) {
    const Shape shape = {static_cast<std::int64_t>(values.size())};
    return constant(Tensor::of<std::int64_t>(DType::kInt64, shape, values).value());
  }

  Net& dense(const std::string& weights, const std::string& bias) {
    return then("Gemm", {weights, bias}, {{"transB", std::int64_t{1}}});
  }
  Net& normalize(const std::string& layer) {
    return then("BatchNormalization",
                {layer + ".scale", layer + ".bias", layer + ".mean", layer + ".variance"});
  }
  /// weights [to, from] of a layer for tensors of any rank, as exporters write it
  Net& linear(const std::string& weights, const std::string& bias) {
    return then("MatMul", {add("Transpose", {weights})}).then("Add", {bias});
  }
};

Net mlp() {
  Net net{"Mlp"};
  return net.dense("w1", "b1").then("Relu").dense("w2", "b2");
}

Net mlp_with_softmax() {
  Net net{"MlpWithSoftmax"};
  return net.then("MatMul", {"w1"})
      .then("Add", {"b1"})
      .then("Tanh")
      .then("MatMul", {"w2"})
      .then("Softmax");
}

Net mse_of_softmax() {
  Net net{"MseOfSoftmax", Loss::kMse};
  return net.then("MatMul", {"w1"}).then("Softmax");
}

Net multi_label() {
  Net net{"MultiLabel", Loss::kBinaryCrossEntropy};
  return net.dense("w1", "b1").then("Elu", {}, {{"alpha", 0.7f}}).dense("w2", "b2").then("Sigmoid");
}

const Integers kOnes = {1, 1, 1, 1}, kTwos = {2, 2};

Net convolutional() {
  Net net{"Convolutional"};
  net.then("Conv", {"w1", "b1"}, {{"strides", Integers{2, 1}}, {"pads", Integers{1, 2, 1, 2}}});
  net.then("Relu").then("MaxPool", {},
                        {{"kernel_shape", Integers{3, 3}}, {"strides", kTwos}, {"pads", kOnes}});
  net.then("Conv", {"w2", "b2"},
           {{"pads", Integers{2, 2, 2, 2}}, {"dilations", kTwos}, {"group", std::int64_t{2}}});
  net.then("Relu").then("AveragePool", {},
                        {{"kernel_shape", kTwos}, {"strides", kTwos}, {"pads", kOnes}});
  net.then(
      "AveragePool", {},
      {{"kernel_shape", Integers{3, 2}}, {"pads", kOnes}, {"count_include_pad", std::int64_t{1}}});
  return net.then("Flatten").dense("w3", "b3");
}

Net depthwise() {
  Net net{"DepthwiseWithBatchStatistics"};
  net.then("Conv", {"w1"}).normalize("bn1");
  net.then("Clip", {net.number(-0.5f), net.number(6)});
  net.then("Conv", {"w2"}, {{"strides", kTwos}, {"pads", kOnes}, {"group", std::int64_t{6}}});
  net.normalize("bn2").then("HardSwish").then("Conv", {"w3"}).normalize("bn3");
  net.then("Mul", {net.add("Sigmoid", {net.last})});
  return net.then("GlobalAveragePool").then("Flatten").dense("w4", "b4");
}

Net residual() {
  Net net{"ResidualWithFrozenStatistics"};
  net.freeze = {"bn*"};
  const std::string start =
      net.then("Conv", {"w1"}, {{"pads", kOnes}}).normalize("bn1").then("Relu").last;
  net.then("Conv", {"w2"}, {{"strides", kTwos}, {"pads", kOnes}}).normalize("bn2").then("Relu");
  net.then("Conv", {"w3"}, {{"pads", kOnes}}).normalize("bn3");
  net.then("Add", {net.add("Conv", {start, "w4"}, {{"strides", kTwos}})}).then("Relu");
  return net.then("GlobalMaxPool").then("Flatten").dense("w5", "b5");
}

Net decoder() {
  Net net{"Decoder", Loss::kMse};
  net.then("Conv", {"w1", "b1"}, {{"strides", kTwos}}).then("LeakyRelu", {}, {{"alpha", 0.2f}});
  net.then("ConvTranspose", {"w2", "b2"},
           {{"strides", kTwos}, {"pads", kOnes}, {"output_padding", Integers{1, 1}}});
  const std::vector<float> scales = {1, 1, 2, 2};
  net.then("Tanh").then("Resize",
                        {"", net.constant(Tensor::of<float>(DType::kFp32, {4}, scales).value())},
                        {{"coordinate_transformation_mode", std::string("asymmetric")},
                         {"nearest_mode", std::string("floor")}});
  net.then("Pad", {net.integers({0, 0, 2, 1, 0, 0, 0, 1})});
  return net.then("Conv", {"w3"}).then("Sigmoid");
}

// A block with normalization first, two heads, and an embedding with positions.
Net transformer() {
  Net net{"Transformer", Loss::kCrossEntropy, DType::kInt64};
  net.last = net.add("Gather", {"embedding", "x"});
  const std::string start = net.then("Add", {"position"}).last;
  net.then("LayerNormalization", {"norm1.weight", "norm1.bias"});
  net.linear("self_attn.in_proj_weight", "self_attn.in_proj_bias");
  net.then("Split", {net.integers({8, 8, 8})}, {{"axis", std::int64_t{-1}}});
  const Names parts = {"query", "key", "value"};
  net.nodes.back().outputs = parts;
  const auto by_heads = [&](const std::string& part, Integers order) {
    const std::string split = net.add("Reshape", {part, net.integers({0, 0, 2, 4})});
    return net.add("Transpose", {split}, {{"perm", std::move(order)}});
  };
  const std::string queries = by_heads("query", {0, 2, 1, 3}), keys = by_heads("key", {0, 2, 3, 1});
  net.last = net.add("Div", {net.add("MatMul", {queries, keys}), net.number(2)});
  net.then("Softmax").then("MatMul", {by_heads("value", {0, 2, 1, 3})});
  net.then("Transpose", {}, {{"perm", Integers{0, 2, 1, 3}}});
  net.then("Reshape", {net.integers({0, 0, 8})});
  net.linear("self_attn.out_proj.weight", "self_attn.out_proj.bias");
  const std::string middle = net.then("Add", {start}).last;
  net.then("LayerNormalization", {"norm2.weight", "norm2.bias"});
  const std::string inner = net.linear("linear1.weight", "linear1.bias").last;
  net.then("Div", {net.number(std::numbers::sqrt2_v<float>)}).then("Erf");
  net.then("Add", {net.number(1)}).then("Mul", {inner}).then("Mul", {net.number(0.5f)});
  net.linear("linear2.weight", "linear2.bias").then("Add", {middle});
  net.then("ReduceMean", {net.integers({1})}, {{"keepdims", std::int64_t{0}}});
  return net.dense("head", "head.bias");
}

Net activations() {
  Net net{"Activations", Loss::kMse};
  Names outputs;
  const auto with = [&](const std::string& weights, std::string op, Names others = {},
                        Attributes attributes = {}) {
    others.insert(others.begin(), net.add("MatMul", {"x", weights}));
    outputs.push_back(net.add(std::move(op), std::move(others), std::move(attributes)));
  };
  for (const char* op :
       {"Abs", "Elu", "Erf", "Exp", "Gelu", "HardSwish", "LeakyRelu", "Mish", "Relu", "Selu",
        "Sigmoid", "Softplus", "Softsign", "Softmax", "LogSoftmax", "Tanh"})
    with(op, op);
  with("Clip", "Clip", {net.number(-1), net.number(0.5f)});
  with("GeluTanh", "Gelu", {}, {{"approximate", std::string("tanh")}});
  with("HardSigmoid", "HardSigmoid", {}, {{"alpha", 1.0f / 6}});
  with("PRelu", "PRelu", {"slope"});
  net.last = net.add("Mean", std::move(outputs));
  return net;
}

onnx::Model model_of(const Net& net, const Json& vector) {
  testing::ModelBuilder builder;
  builder.input("x", net.input, shape_of(vector["inputs"]["x"]));
  for (const auto& [name, value] : vector["weights"].as_object())
    builder.initializer(name, tensor_of(value));
  for (const Named& constant : net.constants) builder.initializer(constant.name, constant.tensor);
  for (const Node& node : net.nodes) builder.node(node);
  return builder.output(net.last).model(20);
}

class Vectors : public ::testing::TestWithParam<Net> {};

void check(const Net& net, Operators operators) {
  const auto& nets = vectors()["nets"].as_array();
  const auto found = std::find_if(nets.begin(), nets.end(), [&](const Json& one) {
    return one["name"].as_string() == net.name;
  });
  ASSERT_NE(found, nets.end());
  const Json& vector = *found;
  const Json& x = vector["inputs"]["x"];
  const bool integers = net.input == DType::kInt64;
  std::vector<Named> inputs = {
      {"x", integers ? tensor_of<std::int64_t>(x, net.input) : tensor_of(x)}};

  onnx::Model model = model_of(net, vector);
  const auto facts = trace(engine(), model, inputs);
  ASSERT_TRUE(facts.ok()) << facts.error();
  const auto graph = make_gradient_graph(
      model, *facts, {.loss = net.loss, .freeze = net.freeze, .operators = operators});
  ASSERT_TRUE(graph.ok()) << graph.error();
  const std::string bytes = onnx::serialize(graph->model);
  infer::LoadOptions options{.model = bytes};
  if (operators == Operators::kOneDnn) options.options["operators"] = "onednn";
  const auto loaded = engine().load(options);
  ASSERT_TRUE(loaded.ok()) << loaded.error();
  inputs.push_back({graph->targets, tensor_of(vector["targets"])});
  inputs.push_back({graph->sample_weights, tensor_of(vector["sample_weights"])});
  for (const auto& weight : graph->weights)
    inputs.push_back({weight.name, tensor_of(vector["weights"][weight.name])});
  const auto outputs = (*loaded)->run(inputs, {});
  ASSERT_TRUE(outputs.ok()) << outputs.error();

  std::map<std::string, Tensor> results;
  for (const Named& output : *outputs) results.emplace(output.name, output.tensor);
  const double loss = vector["loss"].as_double();
  EXPECT_NEAR(static_cast<double>(results.at(graph->loss).values<float>()[0]), loss, 1e-6 * loss);
  expect_near(results.at(graph->output).values<float>(), vector["output"], "output");
  EXPECT_EQ(graph->weights.size(), vector["gradients"].size());
  for (const auto& [name, gradient] : graph->weights)
    expect_near(results.at(gradient).values<float>(), vector["gradients"][name], name);
  EXPECT_EQ(2 * graph->statistics.size(), vector["statistics"].size());
  for (const auto& one : graph->statistics) {
    expect_near(results.at(one.batch_mean).values<float>(), vector["statistics"][one.mean],
                one.mean);
    expect_near(results.at(one.batch_variance).values<float>(), vector["statistics"][one.variance],
                one.variance);
  }
}

TEST_P(Vectors, LossAndGradientsEqualThoseOfAnotherFramework) {
  check(GetParam(), Operators::kStandard);
#ifdef VARDA_ONEDNN
  SCOPED_TRACE("oneDNN");
  check(GetParam(), Operators::kOneDnn);
#endif
}

void PrintTo(const Net& net, std::ostream* out) { *out << net.name; }

INSTANTIATE_TEST_SUITE_P(Networks, Vectors,
                         ::testing::Values(mlp(), mlp_with_softmax(), mse_of_softmax(),
                                           multi_label(), convolutional(), depthwise(), residual(),
                                           decoder(), transformer(), activations()),
                         [](const auto& tested) { return tested.param.name; });

TEST(OptimizerVectors, StepsEqualThoseOfAnotherFramework) {
  using Kind = OptimizerOptions::Kind;
  const std::map<std::string, OptimizerOptions> all = {
      {"Sgd", {}},
      {"SgdWithDecay", {.weight_decay = 0.1}},
      {"Momentum", {.momentum = 0.9, .weight_decay = 0.01}},
      {"Nesterov", {.momentum = 0.8, .nesterov = true, .weight_decay = 0.01}},
      {"Adam", {.kind = Kind::kAdam}},
      {"AdamWithDecay",
       {.kind = Kind::kAdam, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.1}},
      {"AdamW", {.kind = Kind::kAdamW, .beta2 = 0.99, .weight_decay = 0.2}}};
  const Json& training = vectors()["training"];
  ASSERT_EQ(training["optimizers"].size(), all.size());
  for (const Json& one : training["optimizers"].as_array()) {
    const std::string& name = one["name"].as_string();
    auto weight = values_of<float>(training["start"]);
    auto optimizer = Optimizer::create(all.at(name), {{weight.size()}});
    ASSERT_TRUE(optimizer.ok()) << optimizer.error();
    for (std::size_t step = 0; step < 3; ++step) {
      optimizer->begin_step(training["rates"].as_array().at(step).as_double());
      optimizer->update(0, weight, values_of<float>(training["gradients"].as_array().at(step)));
      expect_near(weight, one["steps"].as_array().at(step),
                  name + ", step " + std::to_string(step + 1));
    }
  }
}

}  // namespace vectors_test
}  // namespace
}  // namespace varda::train
