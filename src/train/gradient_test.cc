// The gradient of each operator against finite differences of the loss, through the engine.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "infer/engine.h"
#include "onnx/model.h"
#include "onnx/upgrade.h"
#include "train/gradient_graph.h"
#include "train/testing/model_builder.h"
#include "train/trace.h"

// ONNX Runtime 1.30 leaks 14 bytes when it opens its first model.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libonnxruntime.so"; }
// The leak check of clang 14 crashes on the thread-local memory of OpenMP, which oneDNN brings.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "intercept_tls_get_addr=0"; }

namespace varda::train {
namespace {

namespace gradient_test {

using onnx::Node;
using tensor::DType;
using tensor::Named;
using tensor::Shape;
using tensor::Tensor;
using Integers = std::vector<std::int64_t>;

/// An input of the operator: learned values of a range, or constant integers.
struct Operand {
  Shape shape;
  double low = -1, high = 1;
  Integers integers = {};  // then the values are constant
  bool learned = true;     // false: reals, but constant
};
Operand constant(Integers values) {
  return {.shape = {static_cast<std::int64_t>(values.size())}, .integers = std::move(values)};
}
Operand scalar(std::int64_t value) { return {.shape = {}, .integers = {value}}; }
Operand positive(Shape shape) { return {.shape = std::move(shape), .low = 0.5, .high = 1.5}; }

/// Nodes that read a0, a1, … and make y.
struct Case {
  std::string name;
  std::vector<Node> nodes;
  std::vector<Operand> operands;
  // FP64 with small steps, or FP32 where the engine lacks FP64. kLinear: the output is linear in
  // each operand, so that differences of the quadratic loss are exact for any step.
  enum class Kind { kFp64, kFp32, kLinear } kind = Kind::kFp64;
  Loss loss = Loss::kMse;
  std::vector<std::string> freeze = {};
  Operators operators = Operators::kStandard;
};

Case one(std::string name, std::string op, std::vector<Operand> operands,
         std::vector<onnx::Attribute> attributes = {}, Case::Kind kind = Case::Kind::kFp64) {
  Node node{.op_type = std::move(op), .outputs = {"y"}, .attributes = std::move(attributes)};
  for (std::size_t i = 0; i < operands.size(); ++i) node.inputs.push_back("a" + std::to_string(i));
  return {std::move(name), {std::move(node)}, std::move(operands), kind};
}

infer::Engine& engine() {
  static infer::Engines all({VARDA_ENGINES});
  return *all.get("onnxruntime").value();
}

Tensor real_tensor(DType dtype, const Shape& shape, const std::vector<double>& values) {
  if (dtype == DType::kFp64) return Tensor::of<double>(dtype, shape, std::span(values)).value();
  const std::vector<float> single(values.begin(), values.end());
  return Tensor::of<float>(dtype, shape, std::span(single)).value();
}

std::vector<double> reals(const Tensor& tensor) {
  std::vector<double> out;
  if (tensor.dtype() == DType::kFp64) {
    const auto values = tensor.values<double>();
    out.assign(values.begin(), values.end());
  } else {
    const auto values = tensor.values<float>();
    out.assign(values.begin(), values.end());
  }
  return out;
}

std::vector<double> random_values(Rng& rng, std::size_t count, double low, double high) {
  std::vector<double> out(count);
  for (double& value : out) value = low + (high - low) * rng.unit();
  return out;
}

/// The operands as weights behind a MatMul, so that the operator reads activations.
struct TestModel {
  onnx::Model model;
  std::map<std::string, std::vector<double>> weights;
  DType dtype = DType::kFp32;
};

TestModel set_up(const Case& one, Rng& rng) {
  TestModel out;
  out.dtype = one.kind == Case::Kind::kFp64 ? DType::kFp64 : DType::kFp32;
  testing::ModelBuilder builder;
  builder.input("one", out.dtype, {1, 1});
  for (std::size_t i = 0; i < one.operands.size(); ++i) {
    const Operand& operand = one.operands[i];
    const std::string number = std::to_string(i);
    if (!operand.integers.empty()) {
      builder.initializer("a" + number, Tensor::of<std::int64_t>(DType::kInt64, operand.shape,
                                                                 std::span(operand.integers))
                                            .value());
      continue;
    }
    const auto total = static_cast<std::int64_t>(tensor::elements(operand.shape).value());
    if (!operand.learned) {
      builder.initializer(
          "a" + number, real_tensor(out.dtype, operand.shape,
                                    random_values(rng, static_cast<std::size_t>(total), operand.low,
                                                  operand.high)));
      continue;
    }
    auto& values = out.weights["w" + number] =
        random_values(rng, static_cast<std::size_t>(total), operand.low, operand.high);
    builder.initializer("w" + number, real_tensor(out.dtype, {1, total}, values));
    builder.initializer(
        "s" + number,
        Tensor::of<std::int64_t>(DType::kInt64, {static_cast<std::int64_t>(operand.shape.size())},
                                 std::span(operand.shape))
            .value());
    builder.node({.op_type = "MatMul", .inputs = {"one", "w" + number}, .outputs = {"r" + number}});
    builder.node(
        {.op_type = "Reshape", .inputs = {"r" + number, "s" + number}, .outputs = {"a" + number}});
  }
  for (const Node& node : one.nodes) builder.node(node);
  out.model = builder.output("y").model(20);
  return out;
}

class OperatorGradient : public ::testing::TestWithParam<Case> {};

TEST_P(OperatorGradient, EqualsFiniteDifferencesOfTheLoss) {
  const Case& tested = GetParam();
  const auto rng = seeded_rng(7);
  TestModel setup = set_up(tested, *rng);
  const bool wide = setup.dtype == DType::kFp64;
  const std::vector<Named> batch = {{"one", real_tensor(setup.dtype, {1, 1}, {1})}};
  const auto facts = trace(engine(), setup.model, batch);
  ASSERT_TRUE(facts.ok()) << facts.error();
  const auto graph = make_gradient_graph(
      setup.model, *facts,
      {.loss = tested.loss, .freeze = tested.freeze, .operators = tested.operators});
  ASSERT_TRUE(graph.ok()) << graph.error();
  ASSERT_EQ(graph->weights.size(), setup.weights.size());
  const std::string bytes = onnx::serialize(graph->model);
  infer::LoadOptions options{.model = bytes};
  if (tested.operators == Operators::kOneDnn) {
    ASSERT_TRUE(graph->model.opsets.contains(std::string(kOwnDomain)));
    options.options["operators"] = "onednn";
  }
  const auto loaded = engine().load(options);
  ASSERT_TRUE(loaded.ok()) << loaded.error();

  const Shape shape = facts->at("y").shape;
  const std::size_t count = tensor::elements(shape).value();
  std::vector<double> targets = random_values(*rng, count, -1, 1);
  if (tested.loss == Loss::kCrossEntropy) {  // rows of probabilities
    for (double& value : targets) value = std::abs(value);
    const auto classes = static_cast<std::size_t>(shape.at(1));
    for (std::size_t row = 0; row < count; row += classes) {
      const double sum = std::accumulate(&targets[row], &targets[row] + classes, 0.0);
      for (std::size_t i = 0; i < classes; ++i) targets[row + i] /= sum;
    }
  }
  const auto samples = static_cast<std::size_t>(shape.at(0));
  const std::vector<double> sample_weights = random_values(*rng, samples, 0.2, 1);
  auto weights = setup.weights;
  const auto run = [&] {
    std::vector<Named> inputs = batch;
    inputs.push_back({graph->targets, real_tensor(setup.dtype, shape, targets)});
    inputs.push_back(
        {graph->sample_weights, real_tensor(setup.dtype, {shape.at(0)}, sample_weights)});
    for (const auto& [name, values] : weights)
      inputs.push_back(
          {name, real_tensor(setup.dtype, {1, static_cast<std::int64_t>(values.size())}, values)});
    return (*loaded)->run(inputs, {});
  };
  const auto outputs = run();
  ASSERT_TRUE(outputs.ok()) << outputs.error();
  const double step = tested.kind == Case::Kind::kLinear ? 0.5 : wide ? 1e-5 : 1e-2;
  const double tolerance = tested.kind == Case::Kind::kLinear ? 2e-5 : wide ? 1e-7 : 4e-3;
  for (std::size_t at = 0; at < graph->weights.size(); ++at) {
    const std::string& name = graph->weights[at].name;
    const std::vector<double> gradient = reals(outputs->at(2 + at).tensor);
    std::vector<double>& values = weights.at(name);
    ASSERT_EQ(gradient.size(), values.size()) << name;
    double scale = 1e-3;
    for (const double value : gradient) scale = std::max(scale, std::abs(value));
    // Large operands are sampled.
    const std::size_t stride = std::max<std::size_t>(1, values.size() / 40);
    for (std::size_t i = 0; i < values.size(); i += stride) {
      const double kept = values[i];
      values[i] = kept + step;
      const double above = reals(run().value().at(0).tensor)[0];
      values[i] = kept - step;
      const double below = reals(run().value().at(0).tensor)[0];
      values[i] = kept;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * step), tolerance * scale)
          << name << "[" << i << "]";
    }
  }
}

constexpr auto kFp32 = Case::Kind::kFp32, kLinear = Case::Kind::kLinear;

std::vector<Case> arithmetic() {
  const Shape matrix = {3, 4};
  std::vector<Case> out;
  for (const char* op : {"Add", "Sub", "Mul"}) {
    out.push_back(one(op, op, {{matrix}, {matrix}}));
    out.push_back(one(std::string(op) + "BroadcastLast", op, {{{2, 3, 4}}, {{4}}}));
    out.push_back(one(std::string(op) + "BroadcastBoth", op, {{{2, 1, 4}}, {{3, 1}}}));
  }
  out.push_back(one("Div", "Div", {{{2, 3}}, positive({3})}));
  out.push_back(one("Pow", "Pow", {positive({2, 3}), positive({3})}));
  out.push_back(one("PowOfInteger", "Pow", {{{2, 3}}, constant({3})}));
  out.push_back(one("Sum", "Sum", {{matrix}, {{4}}, {matrix}}));
  out.push_back(one("Mean", "Mean", {{matrix}, {{4}}}, {}, kLinear));
  out.push_back(one("Min", "Min", {{matrix}, {{4}}}));
  out.push_back(one("Max", "Max", {{matrix}, {matrix}}));
  for (const char* op : {"Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs", "Identity", "Sin", "Cos"})
    out.push_back(one(op, op, {{matrix}}));
  for (const char* op : {"Log", "Sqrt", "Reciprocal"})
    out.push_back(one(op, op, {positive(matrix)}));
  for (const char* op : {"Erf", "Softsign", "Softplus", "Selu", "Elu", "LeakyRelu", "HardSigmoid",
                         "Gelu", "Mish", "Celu", "ThresholdedRelu"})
    out.push_back(one(op, op, {{matrix}}, {}, kFp32));
  out.push_back(one("GeluTanh", "Gelu", {{matrix}}, {{"approximate", std::string("tanh")}}, kFp32));
  out.push_back(one("HardSwish", "HardSwish", {{{4, 5}, -5, 5}}, {}, kFp32));
  out.push_back(one("PRelu", "PRelu", {{{2, 3, 4}}, {{3, 1}}}, {}, kFp32));
  out.push_back(
      {"MulBySelf", {{.op_type = "Mul", .inputs = {"a0", "a0"}, .outputs = {"y"}}}, {{matrix}}});
  out.push_back({"Where",
                 {{.op_type = "Greater", .inputs = {"a0", "a1"}, .outputs = {"c"}},
                  {.op_type = "Where", .inputs = {"c", "a1", "a2"}, .outputs = {"y"}}},
                 {{matrix}, {{4}}, {{3, 1}}}});
  out.back().operands[0].learned = false;
  out.push_back(one("Clip", "Clip",
                    {{matrix},
                     {.shape = {}, .low = -0.5, .high = -0.5},
                     {.shape = {}, .low = 0.5, .high = 0.5}}));
  out.back().operands[1].learned = out.back().operands[2].learned = false;
  out.push_back(one("ClipAboveOnly", "Clip", {{matrix}, {}, {.shape = {}, .low = 0, .high = 0}}));
  out.back().nodes[0].inputs[1] = "";
  out.back().operands[1].learned = out.back().operands[2].learned = false;
  out.push_back({"DropoutForInference",
                 {{.op_type = "Dropout", .inputs = {"a0"}, .outputs = {"y"}}},
                 {{matrix}}});
  return out;
}

std::vector<Case> matrices() {
  std::vector<Case> out;
  const std::int64_t yes = 1;
  out.push_back(one("MatMul", "MatMul", {{{3, 4}}, {{4, 2}}}));
  out.push_back(one("MatMulBatchedRows", "MatMul", {{{2, 3, 4}}, {{4, 2}}}));
  out.push_back(one("MatMulBatchedBoth", "MatMul", {{{2, 3, 4}}, {{2, 4, 5}}}));
  out.push_back(one("MatMulBroadcastBatch", "MatMul", {{{2, 1, 3, 4}}, {{5, 4, 2}}}));
  out.push_back(one("MatMulLeftMatrix", "MatMul", {{{3, 4}}, {{2, 4, 2}}}));
  out.push_back(one("MatMulRightVector", "MatMul", {{{2, 3, 4}}, {{4}}}));
  out.push_back(one("MatMulLeftVector", "MatMul", {{{4}}, {{2, 4, 3}}}));
  const auto einsum = [&](std::string name, std::string equation, std::vector<Operand> operands) {
    out.push_back(one("Einsum" + name, "Einsum", std::move(operands), {{"equation", equation}}));
  };
  einsum("Product", "ij,jk->ik", {{{3, 4}}, {{4, 2}}});
  einsum("Heads", "bqhd, bkhd -> bhqk", {{{2, 3, 2, 4}}, {{2, 5, 2, 4}}});
  einsum("Transposed", "abc->cab", {{{2, 3, 4}}});
  einsum("Three", "ab,bc,cd->ad", {{{2, 3}}, {{3, 4}}, {{4, 2}}});
  out.push_back(one("Gemm", "Gemm", {{{3, 4}}, {{4, 2}}, {{2}}}));
  out.push_back(one("GemmTransposedRight", "Gemm", {{{3, 4}}, {{2, 4}}, {{2}}},
                    {{"transB", yes}, {"alpha", 0.5f}, {"beta", 2.0f}}));
  out.push_back(one("GemmTransposedLeft", "Gemm", {{{4, 3}}, {{4, 2}}, {{3, 1}}},
                    {{"transA", yes}, {"alpha", 2.0f}}));
  out.push_back(one("GemmTransposedBoth", "Gemm", {{{4, 3}}, {{2, 4}}, {{}}},
                    {{"transA", yes}, {"transB", yes}}));
  return out;
}

std::vector<Case> shapes() {
  std::vector<Case> out;
  const std::int64_t no = 0, yes = 1, minus = -1;
  out.push_back(one("Reshape", "Reshape", {{{2, 6}}, constant({3, -1})}));
  out.push_back(one("Flatten", "Flatten", {{{2, 3, 2}}}, {{"axis", yes}}));
  out.push_back(one("Squeeze", "Squeeze", {{{2, 1, 3}}, constant({1})}));
  out.push_back(one("Unsqueeze", "Unsqueeze", {{{2, 3}}, constant({0, -1})}));
  out.push_back(one("Transpose", "Transpose", {{{2, 3, 4}}}, {{"perm", Integers{2, 0, 1}}}));
  out.push_back(one("TransposeReversed", "Transpose", {{{2, 3, 4}}}));
  out.push_back(one("Expand", "Expand", {{{3, 1}}, constant({2, 3, 4})}));
  out.push_back(one("Tile", "Tile", {{{2, 3}}, constant({2, 3})}));
  out.push_back(one("Concat", "Concat", {{{2, 3}}, {{2, 1}}, {{2, 2}}}, {{"axis", minus}}));
  out.push_back({"SplitWithUnusedOutput",
                 {{.op_type = "Split",
                   .inputs = {"a0", "a1"},
                   .outputs = {"p", "q", "r"},
                   .attributes = {{"axis", yes}}},
                  {.op_type = "Mul", .inputs = {"p", "r"}, .outputs = {"y"}}},
                 {{{2, 7}}, constant({3, 1, 3})}});
  out.push_back(one("Slice", "Slice", {{{4, 5}}, constant({1, -3}), constant({3, 99})}));
  out.push_back(
      one("SliceSteps", "Slice",
          {{{7, 8}}, constant({1, 0}), constant({7, 8}), constant({1, 0}), constant({2, 3})}));
  out.push_back(
      one("SliceBackwards", "Slice",
          {{{5, 7}}, constant({-1, 5}), constant({-99, 0}), constant({0, 1}), constant({-1, -2})}));
  out.push_back(one("Pad", "Pad", {{{2, 3}}, constant({1, 0, 2, -1})}));
  for (const char* mode : {"reflect", "edge", "wrap"})
    out.push_back(one(std::string("Pad_") + mode, "Pad",
                      {{{2, 4, 3}}, constant({0, 2, 1, 0, 3, 2})}, {{"mode", std::string(mode)}}));
  out.push_back(one("CumSum", "CumSum", {{{2, 4}}, scalar(1)}));
  out.push_back(one("CumSumReversed", "CumSum", {{{2, 4}}, scalar(1)},
                    {{"exclusive", yes}, {"reverse", yes}}));
  out.push_back(one("Trilu", "Trilu", {{{2, 4, 4}}, scalar(1)}, {{"upper", no}}));
  const auto indexed = [&](const std::string& name, const std::string& op,
                           std::vector<Operand> operands, Integers indices, Integers shape,
                           std::vector<onnx::Attribute> attributes = {}) {
    Case added = one(name, op, operands, std::move(attributes));
    added.nodes[0].inputs.insert(added.nodes[0].inputs.begin() + 1, "i");
    const std::string count = std::to_string(operands.size());
    const std::string sizes = "a" + std::to_string(operands.size() + 1);
    added.nodes.insert(added.nodes.begin(),
                       {.op_type = "Reshape", .inputs = {"a" + count, sizes}, .outputs = {"i"}});
    added.operands.push_back(constant(std::move(indices)));
    added.operands.push_back(constant(std::move(shape)));
    out.push_back(std::move(added));
  };
  indexed("GatherND", "GatherND", {{{3, 4, 2}}}, {0, 1, 2, 3, 0, 1}, {3, 2});
  indexed("ScatterND", "ScatterND", {{{4, 2}}, {{2, 2}}}, {3, 1}, {2, 1});
  indexed("ScatterNDAdd", "ScatterND", {{{4, 2}}, {{3, 2}}}, {3, 1, 3}, {3, 1},
          {{"reduction", std::string("add")}});
  indexed("ScatterElements", "ScatterElements", {{{2, 4}}, {{2, 2}}}, {3, 1, 0, 2}, {2, 2},
          {{"axis", yes}});
  out.push_back(one("GatherRepeated", "Gather", {{{4, 3}}, constant({0, 2, 2, -1})}));
  out.push_back(
      one("GatherLastAxis", "Gather", {{{2, 3, 4}}, constant({3, 0, 3})}, {{"axis", minus}}));
  out.push_back(one("GatherScalar", "Gather", {{{2, 3, 4}}, scalar(1)}, {{"axis", yes}}));
  out.push_back({"GatherElements",
                 {{.op_type = "Reshape", .inputs = {"a1", "a2"}, .outputs = {"i"}},
                  {.op_type = "GatherElements",
                   .inputs = {"a0", "i"},
                   .outputs = {"y"},
                   .attributes = {{"axis", yes}}}},
                 {{{2, 4}}, constant({3, 3, 0, 1, 1, 1}), constant({2, 3})}});
  for (const char* op : {"ReduceSum", "ReduceMean"}) {
    out.push_back(one(op, op, {{{2, 3, 4}}, constant({-1})}));
    out.push_back(
        one(std::string(op) + "Dropped", op, {{{2, 3, 4}}, constant({1, 2})}, {{"keepdims", no}}));
  }
  out.push_back(one("ReduceMax", "ReduceMax", {{{2, 3, 4}}, constant({1})}));
  out.push_back(one("ReduceMin", "ReduceMin", {{{2, 3, 4}}, constant({2})}, {{"keepdims", no}}));
  out.push_back(one("ReduceL1", "ReduceL1", {{{2, 3}}, constant({1})}, {}, kFp32));
  out.push_back(one("ReduceLogSumExp", "ReduceLogSumExp", {{{2, 3}}, constant({1})}));
  out.push_back(one("ReduceLogSum", "ReduceLogSum", {positive({2, 3}), constant({1})}, {}, kFp32));
  out.push_back(one("ReduceL2", "ReduceL2", {{{2, 3}}, constant({1})}, {}, kFp32));
  out.push_back(one("ReduceSumSquare", "ReduceSumSquare", {{{2, 3}}, constant({1})}));
  out.push_back(
      one("DepthToSpace", "DepthToSpace", {{{1, 8, 2, 3}}}, {{"blocksize", std::int64_t{2}}}));
  out.push_back(one("SpaceToDepth", "SpaceToDepth", {{{1, 2, 4, 6}}},
                    {{"blocksize", std::int64_t{2}}}, kLinear));
  out.push_back(one("DepthToSpaceByColumns", "DepthToSpace", {{{2, 8, 2, 3}}},
                    {{"blocksize", std::int64_t{2}}, {"mode", std::string("CRD")}}));
  out.push_back({"ResizeNearest",
                 {{.op_type = "Resize",
                   .inputs = {"a0", "", "", "a1"},
                   .outputs = {"y"},
                   .attributes = {{"coordinate_transformation_mode", std::string("asymmetric")},
                                  {"nearest_mode", std::string("floor")}}}},
                 {{{1, 2, 3, 3}}, constant({1, 2, 6, 9})},
                 kLinear});
  // Every way to choose coordinates, up and down by factors that are not whole.
  for (const char* place : {"half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"})
    for (const char* mode :
         {"linear", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil"}) {
      const bool linear = std::string(mode) == "linear";
      out.push_back({std::string("Resize_") + place + "_" + mode,
                     {{.op_type = "Resize",
                       .inputs = {"a0", "", "", "a1"},
                       .outputs = {"y"},
                       .attributes = {{"coordinate_transformation_mode", std::string(place)},
                                      {"mode", std::string(linear ? "linear" : "nearest")},
                                      {"nearest_mode", std::string(linear ? "floor" : mode)}}}},
                     {{{1, 2, 4, 5}}, constant({1, 2, 9, 3})},
                     kLinear});
    }
  out.push_back({"ResizeByScales",
                 {{.op_type = "Resize",
                   .inputs = {"a0", "", "a1"},
                   .outputs = {"y"},
                   .attributes = {{"mode", std::string("linear")}}}},
                 {{{3, 3}}, {.shape = {2}, .low = 1.5, .high = 1.5}},
                 kLinear});
  out.back().operands[1].learned = false;
  return out;
}

std::vector<Case> convolutions() {
  std::vector<Case> out;
  const auto conv = [&](std::string name, Shape x, Shape w,
                        std::vector<onnx::Attribute> attributes) {
    const std::int64_t maps = w[0];
    out.push_back(one("Conv" + name, "Conv", {{x}, {w}, {{maps}}}, attributes, kLinear));
  };
  const Integers twos = {2, 2}, ones = {1, 1, 1, 1};
  conv("", {2, 3, 5, 6}, {4, 3, 3, 3}, {});
  conv("Padded", {2, 3, 5, 5}, {4, 3, 3, 3}, {{"pads", ones}});
  conv("Pointwise", {2, 3, 4, 4}, {5, 3, 1, 1}, {});
  conv("Strided", {2, 3, 7, 7}, {4, 3, 3, 3}, {{"strides", twos}, {"pads", ones}});
  conv("StridedUnread", {2, 2, 8, 9}, {3, 2, 3, 3}, {{"strides", twos}});
  conv("StrideBeyondKernel", {1, 2, 9, 9}, {3, 2, 2, 2}, {{"strides", Integers{4, 4}}});
  conv("Dilated", {2, 2, 8, 8}, {3, 2, 3, 3},
       {{"dilations", twos}, {"pads", Integers{2, 1, 0, 2}}});
  conv("DilatedStrided", {1, 2, 10, 10}, {3, 2, 3, 3}, {{"dilations", twos}, {"strides", twos}});
  conv("Grouped", {2, 4, 5, 5}, {6, 2, 3, 3}, {{"group", std::int64_t{2}}, {"pads", ones}});
  conv("Depthwise", {2, 4, 6, 6}, {4, 1, 3, 3},
       {{"group", std::int64_t{4}}, {"strides", twos}, {"pads", ones}});
  conv("SameUpper", {1, 2, 6, 7}, {3, 2, 4, 4}, {{"auto_pad", std::string("SAME_UPPER")}});
  conv("SameLowerStrided", {1, 2, 7, 7}, {3, 2, 4, 4},
       {{"auto_pad", std::string("SAME_LOWER")}, {"strides", twos}});
  conv("ManyChannels", {2, 16, 4, 5}, {3, 16, 3, 3}, {{"pads", ones}});
  conv("ManyChannelsUnpadded", {2, 16, 5, 4}, {3, 16, 3, 2}, {{"dilations", Integers{2, 1}}});
  conv("ManyChannelsPointwise", {2, 17, 3, 3}, {4, 17, 1, 1}, {});
  conv("ManyChannelsPointwiseStrided", {2, 16, 5, 5}, {4, 16, 1, 1}, {{"strides", twos}});
  conv("ManyChannelsStridedUnread", {2, 16, 8, 7}, {3, 16, 3, 3}, {{"strides", twos}});
  conv("ManyChannelsWidePadding", {1, 16, 3, 3}, {2, 16, 2, 2}, {{"pads", Integers{2, 3, 2, 3}}});
  conv("ManyChannelsSameLower", {1, 16, 5, 6}, {2, 16, 4, 4},
       {{"auto_pad", std::string("SAME_LOWER")}});
  conv("ManyChannelsManyTaps", {1, 16, 9, 9}, {2, 16, 9, 8}, {});
  conv("OneAxis", {2, 3, 9}, {4, 3, 3}, {{"strides", Integers{2}}, {"pads", Integers{1, 1}}});
  conv("ThreeAxes", {1, 2, 4, 4, 4}, {3, 2, 2, 2, 2}, {});
  out.push_back(
      one("ConvTranspose", "ConvTranspose", {{{2, 3, 4, 4}}, {{3, 2, 3, 3}}, {{2}}}, {}, kLinear));
  out.push_back(one("ConvTransposeStrided", "ConvTranspose",
                    {{{1, 4, 3, 3}}, {{4, 2, 3, 3}}, {{4}}},
                    {{"strides", twos},
                     {"pads", ones},
                     {"output_padding", Integers{1, 1}},
                     {"group", std::int64_t{2}}},
                    kLinear));
  for (const char* automatic : {"NOTSET", "SAME_UPPER", "SAME_LOWER"})
    out.push_back(one(
        std::string("ConvTransposeOutputShape_") + automatic, "ConvTranspose",
        {{{1, 2, 3, 3}}, {{2, 2, 4, 4}}},
        {{"strides", twos}, {"output_shape", Integers{7, 6}}, {"auto_pad", std::string(automatic)}},
        kLinear));
  const auto pool = [&](std::string name, std::string op, Shape x,
                        std::vector<onnx::Attribute> attributes) {
    const auto kind = op == "MaxPool" ? Case::Kind::kFp64 : kLinear;
    out.push_back(one(std::move(name), std::move(op), {{x}}, std::move(attributes), kind));
  };
  const Integers threes = {3, 3};
  pool("MaxPool", "MaxPool", {2, 3, 4, 6}, {{"kernel_shape", twos}, {"strides", twos}});
  pool("MaxPoolOverlapping", "MaxPool", {2, 2, 7, 7},
       {{"kernel_shape", threes}, {"strides", twos}, {"pads", ones}});
  pool("AveragePool", "AveragePool", {2, 3, 4, 6}, {{"kernel_shape", twos}, {"strides", twos}});
  pool("AveragePoolPadded", "AveragePool", {2, 2, 7, 7},
       {{"kernel_shape", threes}, {"strides", twos}, {"pads", ones}});
  pool("AveragePoolPaddingCounts", "AveragePool", {2, 2, 6, 6},
       {{"kernel_shape", threes}, {"pads", ones}, {"count_include_pad", std::int64_t{1}}});
  pool("AveragePoolCeil", "AveragePool", {1, 2, 6, 6},
       {{"kernel_shape", threes}, {"strides", twos}, {"ceil_mode", std::int64_t{1}}});
  pool("GlobalAveragePool", "GlobalAveragePool", {2, 3, 4, 5}, {});
  out.push_back(one("GlobalMaxPool", "GlobalMaxPool", {{{2, 3, 3, 3}}}, {}, kFp32));
  return out;
}

std::vector<Case> normalizations() {
  std::vector<Case> out;
  const std::int64_t first = 1, all = 1;
  out.push_back(one("Softmax", "Softmax", {{{3, 5}}}));
  out.push_back(one("SoftmaxMiddleAxis", "Softmax", {{{2, 3, 4}}}, {{"axis", first}}));
  out.push_back(one("LogSoftmax", "LogSoftmax", {{{3, 5}}}));
  out.push_back(one("BatchNormalizationOfBatch", "BatchNormalization",
                    {{{3, 2, 2, 3}}, positive({2}), {{2}}, {{2}}, positive({2})}));
  out.back().operands[3].learned = out.back().operands[4].learned = false;
  out.push_back(one("BatchNormalizationFrozen", "BatchNormalization",
                    {{{3, 2, 2, 3}}, positive({2}), {{2}}, {{2}}, positive({2})}));
  for (std::size_t i = 1; i < 5; ++i) out.back().operands[i].learned = false;
  out.back().freeze = {"a1", "a2"};
  out.push_back(
      one("LayerNormalization", "LayerNormalization", {{{2, 3, 6}}, {{6}}, {{6}}}, {}, kFp32));
  out.push_back(one("LayerNormalizationTwoAxes", "LayerNormalization",
                    {{{2, 3, 4}}, {{3, 4}}, {{3, 4}}}, {{"axis", all}}, kFp32));
  out.push_back(one("InstanceNormalization", "InstanceNormalization",
                    {{{2, 3, 4, 4}}, {{3}}, {{3}}}, {}, kFp32));
  const auto scores = [&](std::string name, std::vector<Node> nodes) {
    out.push_back({std::move(name),
                   std::move(nodes),
                   {{{4, 5}, -2, 2}},
                   Case::Kind::kFp64,
                   Loss::kCrossEntropy});
  };
  for (const char* op : {"Identity", "Sigmoid"})
    out.push_back({std::string("BinaryCrossEntropyOf") + op,
                   {{.op_type = op, .inputs = {"a0"}, .outputs = {"y"}}},
                   {{{4, 3}, -2, 2}},
                   kFp32,
                   Loss::kBinaryCrossEntropy});
  out.push_back(
      {"CrossEntropyOfReshapedSoftmax",
       {{.op_type = "Softmax", .inputs = {"a0"}, .outputs = {"p"}, .attributes = {{"axis", first}}},
        {.op_type = "Flatten", .inputs = {"p"}, .outputs = {"y"}}},
       {{{4, 5, 1, 1}, -2, 2}},
       Case::Kind::kFp64,
       Loss::kCrossEntropy});
  out.push_back({"BinaryCrossEntropyOfSqueezedSigmoid",
                 {{.op_type = "Sigmoid", .inputs = {"a0"}, .outputs = {"p"}},
                  {.op_type = "Squeeze", .inputs = {"p", "a1"}, .outputs = {"y"}}},
                 {{{4, 1}, -2, 2}, constant({1})},
                 kFp32,
                 Loss::kBinaryCrossEntropy});
  // Errors on both sides of the delta, which is 1.
  out.push_back({"Huber",
                 {{.op_type = "Identity", .inputs = {"a0"}, .outputs = {"y"}}},
                 {{{5, 4}, -3, 3}},
                 Case::Kind::kFp64,
                 Loss::kHuber});
  scores("CrossEntropyOfScores", {{.op_type = "Identity", .inputs = {"a0"}, .outputs = {"y"}}});
  scores("CrossEntropyOfSoftmax", {{.op_type = "Softmax", .inputs = {"a0"}, .outputs = {"y"}}});
  scores("CrossEntropyOfLogSoftmax",
         {{.op_type = "LogSoftmax", .inputs = {"a0"}, .outputs = {"y"}}});
  return out;
}

void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

// Two heads over three tokens, with a mask and a residual, as PyTorch's exporter writes them.
std::vector<Case> attention() {
  const auto projected = [](const std::string& weights, const std::string& out, Integers order) {
    return std::vector<Node>{
        {.op_type = "MatMul", .inputs = {"a0", weights}, .outputs = {out + "0"}},
        {.op_type = "Reshape", .inputs = {out + "0", "a5"}, .outputs = {out + "1"}},
        {.op_type = "Transpose",
         .inputs = {out + "1"},
         .outputs = {out},
         .attributes = {{"perm", std::move(order)}}}};
  };
  std::vector<Node> nodes;
  for (auto part : {projected("a1", "q", {0, 2, 1, 3}), projected("a2", "k", {0, 2, 3, 1}),
                    projected("a3", "v", {0, 2, 1, 3})})
    nodes.insert(nodes.end(), part.begin(), part.end());
  const std::vector<Node> rest = {
      {.op_type = "MatMul", .inputs = {"q", "k"}, .outputs = {"scores"}},
      {.op_type = "Div", .inputs = {"scores", "a7"}, .outputs = {"scaled"}},
      {.op_type = "Greater", .inputs = {"a9", "a8"}, .outputs = {"mask"}},
      {.op_type = "Where", .inputs = {"mask", "scaled", "a8"}, .outputs = {"masked"}},
      {.op_type = "Softmax", .inputs = {"masked"}, .outputs = {"shares"}},
      {.op_type = "MatMul", .inputs = {"shares", "v"}, .outputs = {"mixed"}},
      {.op_type = "Transpose",
       .inputs = {"mixed"},
       .outputs = {"tokens"},
       .attributes = {{"perm", Integers{0, 2, 1, 3}}}},
      {.op_type = "Reshape", .inputs = {"tokens", "a6"}, .outputs = {"joined"}},
      {.op_type = "MatMul", .inputs = {"joined", "a4"}, .outputs = {"out"}},
      {.op_type = "Add", .inputs = {"out", "a0"}, .outputs = {"y"}}};
  nodes.insert(nodes.end(), rest.begin(), rest.end());
  Case out{"Attention",
           std::move(nodes),
           {{{2, 3, 8}},
            {{8, 8}},
            {{8, 8}},
            {{8, 8}},
            {{8, 8}},
            constant({0, 0, 2, 4}),
            constant({0, -1, 8}),
            positive({}),
            {.shape = {}, .low = -1, .high = -1},
            {.shape = {3, 3}, .low = -2, .high = 1}}};
  for (const std::size_t i : {7, 8, 9}) out.operands[i].learned = false;
  return {out};
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Arithmetic, OperatorGradient, ::testing::ValuesIn(arithmetic()),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Matrices, OperatorGradient, ::testing::ValuesIn(matrices()), case_name);
INSTANTIATE_TEST_SUITE_P(Shapes, OperatorGradient, ::testing::ValuesIn(shapes()), case_name);
INSTANTIATE_TEST_SUITE_P(Convolutions, OperatorGradient, ::testing::ValuesIn(convolutions()),
                         case_name);
#ifdef VARDA_ONEDNN
/// The convolutions on oneDNN, also with constant weights and with a constant input.
std::vector<Case> own_convolutions() {
  std::vector<Case> out;
  for (Case& tested : convolutions())
    if (tested.nodes.front().op_type == "Conv") out.push_back(std::move(tested));
  Case frozen = one("ConvFrozenWeights", "Conv", {{{2, 3, 5, 5}}, {{4, 3, 3, 3}}}, {}, kLinear);
  frozen.operands[1].learned = false;
  frozen.freeze = {"a1"};
  Case first = one("ConvFirst", "Conv", {{{2, 3, 5, 5}}, {{4, 3, 3, 3}}, {{4}}}, {}, kLinear);
  first.operands[0].learned = false;
  Case bias = one("ConvBiasAlone", "Conv", {{{2, 3, 5, 5}}, {{4, 3, 3, 3}}, {{4}}}, {}, kLinear);
  bias.operands[0].learned = bias.operands[1].learned = false;
  bias.freeze = {"a1"};
  for (Case* more : {&frozen, &first, &bias}) out.push_back(std::move(*more));
  for (Case& tested : out) tested.operators = Operators::kOneDnn;
  return out;
}
INSTANTIATE_TEST_SUITE_P(OneDnn, OperatorGradient, ::testing::ValuesIn(own_convolutions()),
                         case_name);
#endif
INSTANTIATE_TEST_SUITE_P(Blocks, OperatorGradient, ::testing::ValuesIn(attention()), case_name);
INSTANTIATE_TEST_SUITE_P(Normalizations, OperatorGradient, ::testing::ValuesIn(normalizations()),
                         case_name);

}  // namespace gradient_test
}  // namespace
}  // namespace varda::train
